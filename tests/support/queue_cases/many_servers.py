"""Requests served side by side: c slots, unlimited slots, and a server that all share."""

import numpy as np

import tests.support.queue_cases.case as case
from servetwin.sim.records.run import Run
from tests.support.theory.batches import gated_mean_in_system, gated_sojourn_s
from tests.support.theory.queues import (
    erlang_c,
    mg_infinity_probability,
    mmc_wait_s,
    number_integral_s,
    processor_sharing_sojourn_s,
)

UNBOUNDED = case.server()
SLOTS, SLOT_LOAD = 4, 0.6
GATED_RATE_PER_S, GATED_STEPS = 0.3, 3
CROWD_RATE_PER_S, CROWD_STEPS = 3.0, 3
CROWD = int(CROWD_RATE_PER_S * CROWD_STEPS)
SHARED_LOAD = 0.5


def _mmc(rng: np.random.Generator) -> case.Figures:
    requests = case.poisson_trace(rng, SLOTS * SLOT_LOAD, 1, case.exponential(case.STEPS))
    run = case.replay(case.server(max_seqs=SLOTS), case.STEP_COST, requests)
    waits_s = case.settled(run, "queue_s")
    waiting = float((waits_s > case.STEP_S).mean())
    return {"share that waits": waiting, "mean wait": float(waits_s.mean())}


def _gated(rng: np.random.Generator) -> case.Figures:
    requests = case.poisson_trace(rng, GATED_RATE_PER_S, 1, GATED_STEPS)
    run = case.replay(UNBOUNDED, {"constant": 1.0}, requests)
    waited_s = case.mean(run, "queue_s")
    return {"wait for a boundary": waited_s, "mean in system": _mean_in_system(run)}


def _mean_in_system(run: Run) -> float:
    """Return the time average between the end of the warm-up and the last arrival."""
    enter, leave = run.requests[["scheduled_s", "last_token_s"]].to_numpy().T
    start_s, end_s = enter[int(case.WARM_UP * len(enter))], enter[-1]
    inside = number_integral_s(enter.clip(start_s, end_s), leave.clip(start_s, end_s))
    return inside / float(end_s - start_s)


def _crowded(rng: np.random.Generator) -> case.Figures:
    """Measure a server that is never idle: the number in service is that of the last arrivals."""
    requests = case.poisson_trace(rng, CROWD_RATE_PER_S, 1, CROWD_STEPS)
    run = case.replay(UNBOUNDED, {"constant": 1.0}, requests)
    arrivals_s = [request.arrival_s for request in requests]
    steps = run.steps[run.steps["start_s"].between(*np.quantile(arrivals_s, [case.WARM_UP, 1]))]
    few = steps["running"] <= CROWD
    return {f"P(at most {CROWD})": float(np.average(few, weights=steps["steps"]))}


def _shared(draw: case.DrawTokens) -> case.Measure:
    """Return the measurement of a server that all share: a step takes so long per sequence."""

    def measure(rng: np.random.Generator) -> case.Figures:
        requests = case.poisson_trace(rng, SHARED_LOAD, 1, draw)
        run = case.replay(UNBOUNDED, {"rows_from_0": case.STEP_S}, requests)
        sojourns_s = case.settled(run, "e2e_s")
        alone_s = case.STEP_S * case.settled(run, "output_tokens")
        small = alone_s <= np.median(alone_s)
        slowdown = float(sojourns_s[small].sum() / alone_s[small].sum())
        return {"mean sojourn": float(sojourns_s.mean()), "slowdown of the small": slowdown}

    return measure


def _equal(rng: np.random.Generator, count: int) -> case.IntArray:
    return np.full(count, case.STEPS)


def _hyperexponential(rng: np.random.Generator, count: int) -> case.IntArray:
    """Draw sizes with a squared CV of 3: four in five of mean 0.5 s, the others of mean 3 s."""
    means = np.where(rng.random(count) < 0.8, 0.5, 3.0)
    return np.ceil(means * rng.exponential(case.STEPS, count)).astype(np.int64)


_SLOWDOWN = processor_sharing_sojourn_s(1.0, SHARED_LOAD, 1.0)

MANY_SERVERS = (
    case.SelftestCase(
        "mmc",
        f"{SLOTS} slots, exponential services of 1 s, {100 * SLOT_LOAD:.0f} % loaded",
        {
            "share that waits": erlang_c(SLOTS, SLOTS * SLOT_LOAD),
            "mean wait": mmc_wait_s(SLOTS, SLOTS * SLOT_LOAD, 1.0),
        },
        _mmc,
        replications=64,
        precision=case.HEAVY_TAIL,
    ),
    case.SelftestCase(
        "gated",
        f"unlimited batch, {GATED_STEPS} steps of 1 s each, {GATED_RATE_PER_S:g} requests/s",
        {
            "wait for a boundary": gated_sojourn_s(GATED_RATE_PER_S, 1.0, GATED_STEPS)
            - GATED_STEPS,
            "mean in system": gated_mean_in_system(GATED_RATE_PER_S, 1.0, GATED_STEPS),
        },
        _gated,
        replications=10,
    ),
    case.SelftestCase(
        "mg-infinity",
        f"unlimited batch, {CROWD_STEPS} steps of 1 s each, {CROWD_RATE_PER_S:g} requests/s",
        {
            f"P(at most {CROWD})": sum(
                mg_infinity_probability(count, CROWD_RATE_PER_S, CROWD_STEPS)
                for count in range(CROWD + 1)
            )
        },
        _crowded,
    ),
    case.SelftestCase(
        "sharing-equal",
        "step time in proportion to the batch, equal lengths, half loaded",
        {"mean sojourn": _SLOWDOWN},
        _shared(_equal),
        replications=10,
    ),
    case.SelftestCase(
        "sharing-hyperexponential",
        "the same, lengths with a squared coefficient of variation of 3",
        {"mean sojourn": _SLOWDOWN, "slowdown of the small": _SLOWDOWN},
        _shared(_hyperexponential),
        replications=28,
    ),
)
