"""Simulations of decodes that verify drafts, every invariant checked at every step."""

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np

from policies.batch import Batch
from policies.config import PolicyConfig
from policies.kv.paged import PagedKV
from sim.core.simulate import simulate
from sim.records.run import Run
from sim.step_times.acceptance import Acceptance, Verifier
from sim.step_times.step_time import LinearStepTime
from tests.support.checked import CheckedScheduler
from tests.support.random_runs import STEP_TIME
from workloads.request import Request

ONE_SECOND = LinearStepTime.of({"constant": 1.0})
SMALL = PolicyConfig("speculative", kv_tokens=64, block_tokens=4, max_seqs=2, draft_rows=2)


class Scripted:
    """Every answer gets these tokens, pass by pass; a draft of the last row ever after."""

    def __init__(self, *tokens: int, rows: int = 3, prompt_token: bool = True) -> None:
        self.tokens = tokens
        self.rows = rows
        self.prompt_token = prompt_token

    def mean_tokens_per_pass(self) -> float:
        return float(self.rows)

    def passes(self, tokens: int) -> float:
        return float("nan")

    def emissions(self, rng: np.random.Generator) -> Iterator[int]:
        return chain(self.tokens, repeat(self.rows))


def drafted_run(
    config: PolicyConfig,
    requests: list[Request],
    law: Acceptance,
    macro: bool = True,
    seed: int = 0,
    **more: Any,
) -> Run:
    """Every law at every step; nothing is left over at the end."""
    scheduler = RoomForDrafts(config)
    step_time = more.pop("step_time", STEP_TIME)
    verifier = Verifier(law, seed)
    run = simulate(requests, scheduler, step_time, macro=macro, verifier=verifier, **more)
    assert scheduler.load()[:2] == (0, 0)
    usage = scheduler.memory.usage([])
    assert usage.live_tokens == usage.reserved_tokens == usage.internal_waste_tokens == 0
    return run


class RoomForDrafts(CheckedScheduler):
    """Beyond the laws: the rows of rejected drafts lie in blocks that the sequence had reserved."""

    def schedule(self, now_s: float) -> Batch | None:
        batch = super().schedule(now_s)
        for entry in batch.chunks[: batch.drafted] if batch else ():
            if isinstance(self.memory, PagedKV):
                held_tokens = entry.seq.held_blocks * self.memory.block_tokens
                assert entry.start + entry.tokens <= held_tokens
        return batch
