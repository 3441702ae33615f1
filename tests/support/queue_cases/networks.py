"""Two stations in a row, a prefill and a decode pool of one slot each: open, closed, in step."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

import tests.support.queue_cases.case as case
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.request import Request
from tests.support.theory.queues import closed_loop, tandem_sojourn_s
from tests.support.theory.serving import pipeline_makespan_s, pipeline_token_interval_s

RATE_PER_S, TANDEM_S = 0.5, (1.0, 1.25)
CLIENTS, THINK_S, LOOP_S, TURNS = 8, 1.0, (0.2, 0.5), 500
SETTLED = (0.1, 0.8)
"""Of a closed loop's answers: after the warm-up, and before any client has had its last one."""
MICRO_BATCHES, PASSES, STAGE_S = 6, 20, 2.0**-6

_STATIONS = (
    Pool(case.ONE_SLOT, LinearStepTime.of(case.ROW_COST), role="prefill"),
    Pool(case.ONE_SLOT, LinearStepTime.of(case.STEP_COST), role="decode"),
)
_STAGE = LinearStepTime.of({"constant": STAGE_S})
_STAGES = (Pool(case.ONE_SLOT, _STAGE, role="prefill"), Pool(case.ONE_SLOT, _STAGE, role="decode"))


def _tandem(rng: np.random.Generator) -> case.Figures:
    arrivals, lengths = rng.spawn(2)
    arrivals_s = case.poisson_arrivals_s(arrivals, RATE_PER_S, case.REQUESTS)
    requests = case.trace(arrivals_s, *_services(lengths, TANDEM_S, case.REQUESTS))
    return {"mean sojourn": case.mean(simulate_cluster(requests, _STATIONS), "e2e_s")}


def _closed_loop(rng: np.random.Generator) -> case.Figures:
    thinking, lengths = rng.spawn(2)
    think_s = thinking.exponential(THINK_S, (CLIENTS, TURNS))
    requests = _conversations(think_s, *_services(lengths, LOOP_S, think_s.shape))
    answers = simulate_cluster(requests, _STATIONS).requests.sort_values("last_token_s")
    first, last = (int(share * len(answers)) for share in SETTLED)
    ends_s = answers["last_token_s"].to_numpy(np.float64)
    return {
        "requests per s": (last - first) / float(ends_s[last] - ends_s[first]),
        "mean sojourn": float(answers["e2e_s"].iloc[first:last].mean()),
    }


def _pipeline(rng: np.random.Generator) -> case.Figures:
    """Measure passes without randomness: each is a request that follows the pass before."""
    full_s, alone_s = _passes_s(MICRO_BATCHES), _passes_s(1)
    return {
        "makespan": float(full_s[:, 0].max()),
        "token interval, full": float(full_s[0, -1] - full_s[0, -2]),
        "token interval, alone": float(alone_s[0, -1] - alone_s[0, -2]),
    }


def _services(
    rng: np.random.Generator, means_s: tuple[float, float], shape: int | tuple[int, ...]
) -> tuple[case.IntArray, case.IntArray]:
    """Draw exponential prompts and outputs; the prefill gives the first token."""
    prefill_s, decode_s = means_s
    rows = case.exponential_tokens(rng, prefill_s * case.ROWS, shape)
    return rows, 1 + case.exponential_tokens(rng, decode_s * case.STEPS, shape)


def _conversations(
    pauses_s: case.FloatArray, prompts: npt.ArrayLike, outputs: npt.ArrayLike
) -> list[Request]:
    """Return requests; those of a row follow one another, each after its pause."""
    columns = np.broadcast_arrays(pauses_s, prompts, outputs)
    rows = zip(*(column.ravel().tolist() for column in columns), strict=True)
    requests = []
    for (client, turn), row in zip(np.ndindex(pauses_s.shape), rows, strict=True):
        request = Request(f"{client}.{turn}", *row)
        if turn:
            parent = f"{client}.{turn - 1}"
            request = replace(request, parent_ids=(parent,), delay_s=request.arrival_s)
        requests.append(request)
    return sorted(requests, key=lambda request: request.arrival_s)


def _passes_s(micro_batches: int) -> case.FloatArray:
    """Return when each micro-batch (row) ended each of its passes through both stages."""
    requests = _conversations(np.zeros((micro_batches, PASSES)), 1, 2)
    ends_s = simulate_cluster(requests, _STAGES).requests.set_index("request_id")["last_token_s"]
    ordered = ends_s.loc[[request.request_id for request in requests]]
    return ordered.to_numpy(np.float64).reshape(micro_batches, PASSES)


_LOOP = closed_loop(CLIENTS, THINK_S, LOOP_S)

NETWORKS = (
    case.SelftestCase(
        "tandem",
        "prefill and decode pool of one slot, exponential 1 and 1.25 s, 0.5 requests/s",
        {"mean sojourn": tandem_sojourn_s(RATE_PER_S, TANDEM_S)},
        _tandem,
        replications=20,
    ),
    case.SelftestCase(
        "closed-loop",
        f"{CLIENTS} clients think 1 s, prefill 0.2 s, decode 0.5 s, all exponential",
        {"requests per s": _LOOP.throughput_per_s, "mean sojourn": _LOOP.sojourn_s},
        _closed_loop,
        replications=12,
    ),
    case.SelftestCase(
        "pipeline",
        f"two stages of {1000 * STAGE_S:g} ms, {MICRO_BATCHES} micro-batches or one",
        {
            "makespan": pipeline_makespan_s(2, MICRO_BATCHES, STAGE_S),
            "token interval, full": pipeline_token_interval_s(2, MICRO_BATCHES, STAGE_S),
            "token interval, alone": pipeline_token_interval_s(2, 1, STAGE_S),
        },
        _pipeline,
        replications=1,
    ),
)
