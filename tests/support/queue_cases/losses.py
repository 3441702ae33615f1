"""Servers without a queue: a request without a slot, or memory, is refused.

A request is judged at the end of the step it comes in, at most 1e-4 of a service later.
"""

import numpy as np
import numpy.typing as npt

import tests.support.queue_cases.case as case
from servetwin.policies.config import PolicyConfig
from servetwin.sim.records.run import Run
from tests.support.theory.queues import erlang_b, kaufman_roberts

BoolArray = npt.NDArray[np.bool_]

SLOTS, LOAD_ERLANGS = 7, 5.0
BLOCK_TOKENS, BLOCKS = 4_096, 64
SIZES_BLOCKS = np.array([4, 16])
LOADS_ERLANGS = np.array([6.0, 1.5])


def _refused(run: Run) -> BoolArray:
    """Return for each request after the warm-up whether it was refused."""
    refused: BoolArray = (run.requests["status"] == "refused").to_numpy(np.bool_)
    return refused[int(case.WARM_UP * len(refused)) :]


def _erlang(name: str, setting: str, config: PolicyConfig) -> case.SelftestCase:
    def measure(rng: np.random.Generator) -> case.Figures:
        requests = case.poisson_trace(rng, LOAD_ERLANGS, 1, case.exponential(case.STEPS))
        run = case.replay(config, case.STEP_COST, requests)
        return {"share refused": float(_refused(run).mean())}

    exact = {"share refused": erlang_b(SLOTS, LOAD_ERLANGS)}
    setting = f"{setting}, {LOAD_ERLANGS:g} erlangs, no queue"
    return case.SelftestCase(name, setting, exact, measure, replications=26)


def _two_sizes(rng: np.random.Generator) -> case.Figures:
    """Measure equal services of 1 s; prompts fill the blocks that the output leaves."""
    arrivals, classes = rng.spawn(2)
    wide = classes.random(case.REQUESTS) < LOADS_ERLANGS[1] / LOADS_ERLANGS.sum()
    prompts = SIZES_BLOCKS[wide.astype(np.int64)] * BLOCK_TOKENS - case.STEPS + 1
    config = case.server(
        kv_tokens=BLOCKS * BLOCK_TOKENS, block_tokens=BLOCK_TOKENS, admission="full", queue_limit=0
    )
    arrivals_s = case.poisson_arrivals_s(arrivals, float(LOADS_ERLANGS.sum()), case.REQUESTS)
    run = case.replay(config, case.STEP_COST, case.trace(arrivals_s, prompts, case.STEPS))
    refused = _refused(run)
    wide = wide[-len(refused) :]
    return _by_size(refused[~wide].mean(), refused[wide].mean())


def _by_size(narrow: float, wide: float) -> case.Figures:
    return {"narrow: share refused": float(narrow), "wide: share refused": float(wide)}


_REGION = 1 << 20

LOSSES = (
    _erlang("erlang-slots", f"{SLOTS} slots", case.server(max_seqs=SLOTS, queue_limit=0)),
    _erlang(
        "erlang-memory",
        f"contiguous memory for {SLOTS}",
        case.server(
            kv="contiguous", kv_tokens=SLOTS * _REGION, max_model_len=_REGION, queue_limit=0
        ),
    ),
    case.SelftestCase(
        "two-sizes",
        f"{BLOCKS} blocks reserved whole, requests of 4 (6 erlangs) and 16 (1.5), no queue",
        _by_size(*kaufman_roberts(BLOCKS, SIZES_BLOCKS.tolist(), LOADS_ERLANGS.tolist()).tolist()),
        _two_sizes,
        replications=32,
        precision=case.HEAVY_TAIL,
    ),
)
