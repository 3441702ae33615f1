"""Schedulers of drafts that break an invariant are stopped, each by its name."""

from dataclasses import replace

import pytest

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig
from servetwin.policies.invariants import (
    BUDGETS,
    POSITIONS,
    TOKENS,
    InvariantBroken,
    InvariantChecked,
)
from servetwin.policies.kv.contiguous import ContiguousKV
from servetwin.policies.protocols import KVMemory
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.schedulers.room_rules import Reserved
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.acceptance import Verifier
from tests.support.checked import request
from tests.support.drafted_runs import ONE_SECOND, SMALL, Scripted, drafted_run


class KeepsWhatWasRejected(ContinuousBatching):
    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        passes = batch.entries[: batch.drafted]
        finished = super().complete(batch, steps)
        for entry in passes:
            entry.seq.base_computed_tokens = entry.start + entry.tokens
        return finished


class TakesBeyondTheAnswer(ContinuousBatching):
    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        passes = batch.entries[: batch.drafted]
        finished = super().complete(batch, steps)
        for entry in passes:
            entry.seq.base_generated_tokens += entry.seq in finished
        return finished


class ForgetsTheRoom(ContinuousBatching):
    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, config)
        self.admitting_memory = Reserved(memory)


class SkipsAPosition(ContinuousBatching):
    def schedule(self, now_s: float) -> Batch | None:
        batch = super().schedule(now_s)
        if batch and batch.drafted:
            for seq in self.decodes:
                seq.base_computed_tokens += 1
        return batch


class ForgetsItsBudget(ContinuousBatching):
    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, config)
        self.budget *= 4


@pytest.mark.parametrize(
    ("policy", "law"),
    [
        (KeepsWhatWasRejected, POSITIONS),
        (TakesBeyondTheAnswer, TOKENS),
        (ForgetsTheRoom, POSITIONS),
        (SkipsAPosition, POSITIONS),
        (ForgetsItsBudget, BUDGETS),
    ],
)
def test_a_broken_scheduler_of_drafts_is_stopped(
    policy: type[ContinuousBatching], law: str
) -> None:
    """A region of 16 holds 8 + 8 positions, and not the drafts that begin at the 15th."""
    config = replace(SMALL, kv="contiguous", reservation="exact", token_budget=12)
    inner = policy(ContiguousKV(config), config)
    scheduler = InvariantChecked(inner, config, every_call=True)
    requests = [request("a", 0.0, 8, 8), request("b", 1.5, 12, 4)]
    with pytest.raises(InvariantBroken) as broken:
        simulate(requests, scheduler, ONE_SECOND, verifier=Verifier(Scripted(3, 2, 1, 3)))
    assert f"{law!r}" in str(broken.value)


def test_the_same_requests_break_no_law_as_they_should_be_served() -> None:
    config = replace(SMALL, kv="contiguous", reservation="exact", token_budget=12)
    requests = [request("a", 0.0, 8, 8), request("b", 1.5, 12, 4)]
    run = drafted_run(config, requests, Scripted(3, 2, 1, 3), step_time=ONE_SECOND)
    assert set(run.requests["status"]) == {"finished"}
