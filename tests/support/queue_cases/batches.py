"""Whole batches: all waiting requests, a bounded number of them, and static batching."""

import numpy as np

import tests.support.queue_cases.case as case
from servetwin.policies.config import PolicyConfig
from tests.support.theory.batches import (
    BatchQueue,
    batch_service,
    bounded_batch_service,
    exponential_slot_efficiency,
    geometric_slot_efficiency,
    static_batch_makespan_s,
    uniform_slot_efficiency,
)

RATE_PER_S, PER_REQUEST_S, FIXED_S = 1.0, 0.5, 1.0
BOUND = 4
SLOTS, BATCHES = 8, 200
MEAN_TOKENS, LONGEST_TOKENS, FINE_TOKENS = 128, 256, 100_000
STATIC_PROMPT, STATIC_OUTPUT = 512, 1_024
STATIC_PREFILL_S, STATIC_STEP_S, STATIC_CONTEXT_S = 2**-4, 2**-7, 2**-22
"""Powers of two, which the step time holds exactly."""


def _batched(name: str, setting: str, config: PolicyConfig, exact: BatchQueue) -> case.SelftestCase:
    cost = {"constant": FIXED_S, "rows_from_0": PER_REQUEST_S}

    def measure(rng: np.random.Generator) -> case.Figures:
        run = case.replay(config, cost, case.poisson_trace(rng, RATE_PER_S, 1, 1))
        sizes = run.steps["running"].to_numpy(np.int64)
        mean_batch = float(sizes[int(case.WARM_UP * len(sizes)) :].mean())
        return {"mean sojourn": case.mean(run, "e2e_s"), "mean batch": mean_batch}

    figures = {"mean sojourn": exact.sojourn_s, "mean batch": exact.mean_batch}
    return case.SelftestCase(name, setting, figures, measure)


def _static_makespan(rng: np.random.Generator) -> case.Figures:
    config = case.server(batching="static", max_seqs=SLOTS)
    cost = {
        "constant": STATIC_STEP_S,
        "prefill_chunks": (STATIC_PREFILL_S - STATIC_STEP_S) / SLOTS,
        "decode_context_tokens": STATIC_CONTEXT_S,
    }
    run = case.replay(config, cost, case.trace(np.zeros(SLOTS), STATIC_PROMPT, STATIC_OUTPUT))
    return {"makespan": float(run.requests["last_token_s"].max())}


def _slots(distribution: str, draw: case.DrawTokens, exact: float) -> case.SelftestCase:
    """Return a case: tokens per slot and step of a server that never lacks requests."""
    config = case.server(batching="static", max_seqs=SLOTS)

    def measure(rng: np.random.Generator) -> case.Figures:
        outputs = draw(rng, SLOTS * BATCHES)
        requests = case.trace(np.zeros(len(outputs)), outputs=outputs)
        run = case.replay(config, {"constant": 1.0}, requests)
        slot_steps = SLOTS * int(run.steps["steps"].sum())
        return {"slot efficiency": float(outputs.sum()) / slot_steps}

    setting = f"static batches of {SLOTS}, saturated, {distribution} output lengths"
    return case.SelftestCase(f"static-{distribution}", setting, {"slot efficiency": exact}, measure)


BATCHING = (
    _batched(
        "batch-service",
        "takes all waiting requests: 1 s a batch and 0.5 s a request, 1 request/s",
        case.server(),
        batch_service(RATE_PER_S, PER_REQUEST_S, FIXED_S),
    ),
    _batched(
        "bounded-batch",
        f"the same, at most {BOUND} at once",
        case.server(max_seqs=BOUND),
        bounded_batch_service(RATE_PER_S, PER_REQUEST_S, FIXED_S, BOUND),
    ),
    case.SelftestCase(
        "static-makespan",
        f"one static batch of {SLOTS} equal requests, step time grows with the context",
        {
            "makespan": static_batch_makespan_s(
                SLOTS,
                STATIC_PROMPT,
                STATIC_OUTPUT,
                prefill_s=STATIC_PREFILL_S,
                step_s=STATIC_STEP_S,
                per_context_token_s=STATIC_CONTEXT_S,
            )
        },
        _static_makespan,
        replications=1,
    ),
    _slots(
        "uniform",
        lambda rng, count: rng.integers(1, LONGEST_TOKENS, count, endpoint=True),
        uniform_slot_efficiency(SLOTS, LONGEST_TOKENS),
    ),
    _slots(
        "geometric",
        lambda rng, count: rng.geometric(1 / MEAN_TOKENS, count),
        geometric_slot_efficiency(SLOTS, MEAN_TOKENS),
    ),
    _slots("exponential", case.exponential(FINE_TOKENS), exponential_slot_efficiency(SLOTS)),
)
