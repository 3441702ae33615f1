"""One slot: equal, exponential and other services, in several orders of the queue."""

import numpy as np

import tests.support.queue_cases.case as case
from servetwin.policies.config import QueueOrder
from tests.support.theory.queues import (
    PriorityClass,
    md1_wait_s,
    mg1_wait_s,
    mm1_sojourn_quantile_s,
    priority_waits_s,
    sjf_waits_s,
)

UTILISATION = 0.5
TOKEN_S = 0.02
LONGEST_TOKENS = 256


def _md1(rng: np.random.Generator) -> case.Figures:
    requests = case.poisson_trace(rng, UTILISATION, 1, 1)
    run = case.replay(case.ONE_SLOT, {"constant": 1.0}, requests)
    return {"mean wait": case.mean(run, "queue_s")}


def _mm1(rng: np.random.Generator) -> case.Figures:
    requests = case.poisson_trace(rng, UTILISATION, case.exponential(case.ROWS), 1)
    run = case.replay(case.ONE_SLOT, case.ROW_COST, requests)
    p99_s = float(np.quantile(case.settled(run, "e2e_s"), 0.99))
    return {"mean wait": case.mean(run, "queue_s"), "p99 sojourn": p99_s}


def _mg1(
    distribution: str,
    mean_tokens: float,
    cv: float,
    draw: case.DrawTokens,
    replications: int,
) -> case.SelftestCase:
    """Return a case whose services have the distribution of the output tokens."""
    service_s = mean_tokens * TOKEN_S
    rate_per_s = UTILISATION / service_s

    def measure(rng: np.random.Generator) -> case.Figures:
        requests = case.poisson_trace(rng, rate_per_s, 1, draw)
        run = case.replay(case.ONE_SLOT, {"constant": TOKEN_S}, requests)
        return {"mean wait": case.mean(run, "queue_s")}

    setting = (
        f"one slot, steps of 20 ms, {distribution} outputs of {mean_tokens:g} tokens, half loaded"
    )
    exact = {"mean wait": mg1_wait_s(rate_per_s, service_s, cv)}
    return case.SelftestCase(f"mg1-{distribution}", setting, exact, measure, replications)


def _uniform(rng: np.random.Generator, count: int) -> case.IntArray:
    return rng.integers(1, LONGEST_TOKENS, count, endpoint=True)


_UNIFORM_MEAN = (1 + LONGEST_TOKENS) / 2
_UNIFORM_CV = float(np.sqrt((LONGEST_TOKENS**2 - 1) / 12)) / _UNIFORM_MEAN

SINGLE_SERVER = (
    case.SelftestCase(
        "md1",
        "one slot, services of 1 s, half loaded",
        {"mean wait": md1_wait_s(UTILISATION, 1.0)},
        _md1,
        replications=26,
    ),
    case.SelftestCase(
        "mm1",
        "one slot, exponential services of 1 s, half loaded",
        {
            "mean wait": mg1_wait_s(UTILISATION, 1.0, service_cv=1.0),
            "p99 sojourn": mm1_sojourn_quantile_s(0.99, UTILISATION, 1.0),
        },
        _mm1,
        replications=48,
        precision=case.HEAVY_TAIL,
    ),
    _mg1("uniform", _UNIFORM_MEAN, _UNIFORM_CV, _uniform, 28),
)


ORDERED_REQUESTS = 10_000
ORDERED_UTILISATION = 0.7
SIZES_S = np.array([1, 9])
SHARES = np.array([0.9, 0.1])
MEAN_S = float(SHARES @ SIZES_S)
CV = float(np.sqrt(SHARES @ SIZES_S**2 - MEAN_S**2)) / MEAN_S
RATE_PER_S = ORDERED_UTILISATION / MEAN_S


def _ordered(order: QueueOrder, exact: case.Figures, replications: int) -> case.SelftestCase:
    """Return a case whose long requests have the higher priority; other orders ignore it."""
    config = case.server(max_seqs=1, queue_order=order)

    def measure(rng: np.random.Generator) -> case.Figures:
        arrivals, lengths = rng.spawn(2)
        is_long = lengths.random(ORDERED_REQUESTS) < SHARES[1]
        rows = SIZES_S[is_long.astype(np.int64)] * case.ROWS
        arrivals_s = case.poisson_arrivals_s(arrivals, RATE_PER_S, ORDERED_REQUESTS)
        run = case.replay(config, case.ROW_COST, case.trace(arrivals_s, rows, priorities=is_long))
        waits_s = case.settled(run, "queue_s")
        is_long = is_long[-len(waits_s) :]
        return {
            "mean wait": float(waits_s.mean()),
            "short: mean wait": float(waits_s[~is_long].mean()),
            "long: mean wait": float(waits_s[is_long].mean()),
        }

    setting = f"one slot, services of 1 s (90 %) and 9 s, 70 % loaded, order {order}"
    return case.SelftestCase(
        order, setting, exact, measure, replications, precision=case.HEAVY_TAIL
    )


_SJF_S = sjf_waits_s(RATE_PER_S, SIZES_S.tolist(), SHARES.tolist())
_CLASSES = zip((RATE_PER_S * SHARES).tolist(), SIZES_S.tolist(), strict=True)
_LONG_S, _SHORT_S = priority_waits_s([PriorityClass(*c) for c in _CLASSES][::-1])

_FOR_SJF = {"mean wait": float(SHARES @ _SJF_S), "short: mean wait": float(_SJF_S[0])}
_FOR_PRIORITY = {"long: mean wait": float(_LONG_S), "short: mean wait": float(_SHORT_S)}

QUEUE_ORDERS = (
    _ordered("fcfs", {"mean wait": mg1_wait_s(RATE_PER_S, MEAN_S, CV)}, 18),
    _ordered("sjf", _FOR_SJF, 10),
    _ordered("priority", _FOR_PRIORITY, 28),
)
