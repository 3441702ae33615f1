"""A policy loaded by path that breaks an invariant is stopped with its name, step and sequence."""

import pickle
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from servetwin.policies.batch import Batch
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.invariants import (
    BUDGETS,
    CONSERVED,
    ONCE,
    POSITIONS,
    TOKENS,
    WORK,
    InvariantBroken,
    InvariantChecked,
)
from servetwin.policies.kv.contiguous import ContiguousKV
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.protocols import KVMemory, KVUsage
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.errors import PluginError, PolicyError
from servetwin.workloads.request import Request
from tests.support.checked import request
from tests.support.command import SERVER, refused, servetwin
from tests.support.paths import SAMPLE

ONE_SECOND = LinearStepTime.of({"constant": 1.0})
SMALL: dict[str, Any] = {
    "kv_tokens": 64, "block_tokens": 4, "max_model_len": 32, "max_seqs": 2, "token_budget": 8,
}  # fmt: skip
# Steps of continuous batching: 0 the prompt of a, 1 that of b (11 rows are too many for one step),
# 4 the first 8 rows of c. The first four steps end a and b.
REQUESTS = [
    request("a", 0.0, prompt=5, output=4),
    request("b", 0.0, prompt=6, output=3),
    request("c", 0.5, prompt=9, output=5),
    request("d", 0.5, prompt=4, output=2),
]


def own(policy: type) -> str:
    """One of the classes below, as a user would name it."""
    return f"{__file__}:{policy.__name__}"


class Correct(ContinuousBatching):
    """One at a time: slow, but no invariant forbids it."""

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, replace(config, max_seqs=1))


class AdmitsTwice(ContinuousBatching):
    def schedule(self, now_s: float) -> Batch | None:
        batch = super().schedule(now_s)
        if batch and len(batch.chunks) == 1:
            batch.chunks = [*batch.chunks, batch.chunks[0]._replace(tokens=1)]
        return batch


class EndsTwice(ContinuousBatching):
    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        return super().complete(batch, steps) * 2


class TooManySequences(ContinuousBatching):
    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, replace(config, max_seqs=config.max_seqs + 1))


class TooManyRows(ContinuousBatching):
    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, config)
        self.budget += 1


class SkipsAPosition(ContinuousBatching):
    def schedule(self, now_s: float) -> Batch | None:
        batch = super().schedule(now_s)
        if batch:
            batch.chunks = [
                c._replace(start=c.start + 1, tokens=c.tokens - 1) for c in batch.chunks
            ]
        return batch


class SamplesTooSoon(ContinuousBatching):
    def schedule(self, now_s: float) -> Batch | None:
        batch = super().schedule(now_s)
        if batch:
            batch.chunks = [chunk._replace(yields_token=True) for chunk in batch.chunks]
        return batch


class ComputesNothing(ContinuousBatching):
    def schedule(self, now_s: float) -> Batch | None:
        batch = super().schedule(now_s)
        if batch:
            batch.chunks = [chunk._replace(tokens=0) for chunk in batch.chunks]
        return batch


class EndsEarly(ContinuousBatching):
    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        finished = super().complete(batch, steps)
        early = list(self.decodes)[:1]
        for seq in early:
            self.take_out(seq)
        return [*finished, *early]


class RunsTooLong(ContinuousBatching):
    def repeatable_steps(self, batch: Batch) -> int:
        return super().repeatable_steps(batch) + 2


class NeverRuns(ContinuousBatching):
    def schedule(self, now_s: float) -> Batch | None:
        return None


class ForgetsTheDone(ContinuousBatching):
    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        super().complete(batch, steps)
        return []


class NoStepAtAll(ContinuousBatching):
    def repeatable_steps(self, batch: Batch) -> int:
        return 0


class ReservesTooLittle(PagedKV):
    def reserve(self, seq: Sequence, tokens: int) -> bool:
        return super().reserve(seq, max(1, tokens - self.block_tokens))

    def table(self, seq: Sequence, tokens: int) -> list[int]:
        return super().table(seq, min(tokens, seq.held.blocks * self.block_tokens))


class SameBlocksForAll(PagedKV):
    def table(self, seq: Sequence, tokens: int) -> list[int]:
        seq.blocks = list(range(-(-tokens // self.block_tokens)))
        return seq.blocks


class SameRegionForAll(ContiguousKV):
    def reserve(self, seq: Sequence, tokens: int) -> bool:
        reserved = super().reserve(seq, tokens)
        seq.region_start = 0
        return reserved


class LeaksABlock(PagedKV):
    def release(self, seq: Sequence) -> None:
        super().release(seq)
        self._free -= 1


class NeverReleases(PagedKV):
    def release(self, seq: Sequence) -> None:
        pass


class CountsATokenTwice(PagedKV):
    """Its blocks are right, and what it says of their use is wrong."""

    def usage(self, seqs: Iterable[Sequence]) -> KVUsage:
        usage = super().usage(seqs)
        return replace(usage, live_tokens=usage.live_tokens + 1) if usage.live_tokens else usage


class AlwaysFull(PagedKV):
    def reserve(self, seq: Sequence, tokens: int) -> bool:
        return False


def replay(requests: Iterable[Request] = REQUESTS, check: bool = True, **policies: Any) -> Run:
    scheduler = build_scheduler(PolicyConfig(**{**SMALL, **policies}), check)
    assert isinstance(scheduler, InvariantChecked)
    return simulate(requests, scheduler, ONE_SECOND)


BROKEN_SCHEDULERS = [
    (AdmitsTwice, POSITIONS, 0, "sequence 'a'", "it is in the batch twice"),
    (EndsTwice, ONCE, 4, "sequence 'a'", "it has ended already, or never came"),
    (TooManySequences, BUDGETS, 2, "the batch", "3 sequences, 2 allowed"),
    (TooManyRows, BUDGETS, 4, "the batch", "9 rows, 8 allowed"),
    (SkipsAPosition, POSITIONS, 0, "sequence 'a'", "it starts at 1, 0 positions are computed"),
    (SamplesTooSoon, POSITIONS, 4, "sequence 'c'", "it yields a token before its last position"),
    (ComputesNothing, POSITIONS, 0, "sequence 'a'", "its entry computes nothing"),
    (EndsEarly, TOKENS, 1, "sequence 'a'", "1 out, 4 asked"),
    (RunsTooLong, TOKENS, 9, "sequence 'b'", "4 out, 3 asked"),
    (NeverRuns, WORK, 0, "sequence 'a'", "it waits, and 64 KV tokens are free"),
    (ForgetsTheDone, WORK, 10, "sequence 'a'", "it waits, and 64 KV tokens are free"),
    (NoStepAtAll, WORK, 0, "the batch", "repeatable_steps is 0"),
]
BROKEN_MEMORIES = [
    (ReservesTooLittle, POSITIONS, 0, "sequence 'a'", "it needs 5 positions and holds 4"),
    (SameBlocksForAll, CONSERVED, 1, "sequence 'b'", "block 0 is in two tables"),
    (SameRegionForAll, CONSERVED, 1, "sequence 'b'", "regions overlap"),
    (LeaksABlock, CONSERVED, 4, "sequence 'a'", "blocks leak"),
    (NeverReleases, CONSERVED, 4, "sequence 'a'", "blocks leak"),
    (AlwaysFull, WORK, 0, "sequence 'a'", "it waits, and 64 KV tokens are free"),
]


@pytest.mark.parametrize(("policy", "invariant", "step", "subject", "detail"), BROKEN_SCHEDULERS)
def test_a_scheduler_that_breaks_an_invariant_is_stopped(
    policy: type, invariant: str, step: int, subject: str, detail: str
) -> None:
    with pytest.raises(InvariantBroken) as caught:
        replay(batching=own(policy))
    said = str(caught.value)
    assert (
        f"{own(policy)} over paged broke an invariant at step {step}: {invariant!r}; {subject}"
        in said
    )
    assert detail in said


@pytest.mark.parametrize(("policy", "invariant", "step", "subject", "detail"), BROKEN_MEMORIES)
def test_a_memory_that_breaks_an_invariant_is_stopped(
    policy: type, invariant: str, step: int, subject: str, detail: str
) -> None:
    with pytest.raises(InvariantBroken) as caught:
        replay(kv=own(policy))
    said = str(caught.value)
    assert (
        f"continuous over {own(policy)} broke an invariant at step {step}: {invariant!r}; {subject}"
        in said
    )
    assert detail in said


@pytest.mark.parametrize(
    ("role", "policy", "invariant"),
    [
        *(("batching", policy, invariant) for policy, invariant, *_ in BROKEN_SCHEDULERS),
        *(("kv", policy, invariant) for policy, invariant, *_ in BROKEN_MEMORIES),
    ],
)
def test_a_broken_policy_is_stopped_without_a_walk_at_every_call(
    role: str, policy: type, invariant: str
) -> None:
    """The step may be a later one; it is named, with the invariant and the sequence."""
    requests = [
        request(f"{r.request_id}{n}", r.arrival_s, r.prompt_tokens, r.output_tokens)
        for r in REQUESTS
        for n in range(4)
    ]
    with pytest.raises(InvariantBroken) as caught:
        replay(requests, check=False, **{role: policy})
    said = str(caught.value)
    assert re.search(rf"broke an invariant at step \d+: {re.escape(repr(invariant))}; ", said)
    assert own(policy) in said


def test_a_checked_run_is_stopped_by_a_wrong_usage_of_memory() -> None:
    with pytest.raises(InvariantBroken, match=f"{re.escape(repr(CONSERVED))}.*live_tokens=6"):
        replay(kv=own(CountsATokenTwice))


def test_walks_are_rare() -> None:
    """At the first calls, then at every 64th, and later where many sequences run."""
    memory = Counted(PolicyConfig(kv_tokens=65_536))
    config = PolicyConfig(batching="plain.py:Mine", max_seqs=64)
    checked = InvariantChecked(ContinuousBatching(memory, config), config)
    simulate([request(str(n), 0.0, 4, 400) for n in range(20)], checked, ONE_SECOND, macro=False)
    assert memory.checks < 5 + 400 / (16 * 20) + 1


class LosesNumbers(PagedKV):
    """Counts its blocks rightly, but one of them has lost its number."""

    def check(self, seqs: Iterable[Sequence]) -> None:
        super().check(seqs)
        assert list(seqs), "a number is lost"


def test_all_memory_of_an_empty_server_is_looked_at() -> None:
    with pytest.raises(InvariantBroken, match="a number is lost"):
        replay(REQUESTS[:1], check=False, kv=own(LosesNumbers))


class Counted(PagedKV):
    """Counts the walks."""

    checks = 0

    def check(self, seqs: Iterable[Sequence]) -> None:
        self.checks += 1
        super().check(seqs)


def test_a_class_stands_for_its_name() -> None:
    classes: dict[str, Any] = {"batching": Correct, "kv": Counted}
    config = replace(PolicyConfig(), **classes)
    assert config.name == f"{own(Correct)}+{own(Counted)}"
    assert pickle.loads(pickle.dumps(config)) == config
    assert type(config.as_dict()["kv"]) is str
    scheduler = build_scheduler(config)
    assert isinstance(scheduler, InvariantChecked)
    assert isinstance(scheduler.memory, Counted)
    classes = {"batching": ContinuousBatching}
    assert PolicyConfig(**classes).batching == "continuous"
    with pytest.raises(PolicyError, match=r"kv: 3 is not .*; it must be a name, path\.py:Class"):
        replace(PolicyConfig(), **dict[str, Any](kv=3))
    with pytest.raises(PluginError, match=r"batching: .*: int"):
        build_scheduler(replace(PolicyConfig(), **dict[str, Any](batching=int)))


def test_nobody_may_be_in_a_scheduler_twice() -> None:
    twice = [request("a", 0.0, prompt=5, output=4), request("a", 1.0)]
    with pytest.raises(InvariantBroken, match="sequence 'a': it is in the scheduler already"):
        replay(twice, batching=own(Correct))


def test_a_correct_policy_runs_to_the_end() -> None:
    run = replay(batching=own(Correct))
    assert run.requests["status"].tolist() == ["finished"] * 4
    assert run.requests["output_tokens"].tolist() == [4, 3, 5, 2]
    steps = [4, 3, 1 + 5, 2]  # a prompt of 9 under a budget of 8 takes two
    ends_s = [sum(steps[: place + 1]) for place in range(4)]
    assert run.requests["last_token_s"].tolist() == ends_s


PLUG_INS = [("--batching", NeverRuns, WORK), ("--kv", LeaksABlock, CONSERVED)]


@pytest.mark.parametrize(("role", "policy", "invariant"), PLUG_INS)
def test_replay_stops_in_one_line(role: str, policy: type, invariant: str) -> None:
    said = refused("replay", SAMPLE, *SERVER, role, own(policy), "--replications", 0)
    assert said.startswith("servetwin: ")
    assert own(policy) in said
    assert re.search(rf"broke an invariant at step \d+: {re.escape(repr(invariant))}; ", said)


class Raises(ContinuousBatching):
    """Fails in somebody's own code."""

    def schedule(self, now_s: float) -> Batch | None:
        raise KeyError("no such thing")


class Overbooks(PagedKV):
    """Says that there is room when there is none."""

    def reserve(self, seq: Sequence, tokens: int) -> bool:
        self._free += 100
        return super().reserve(seq, tokens)


def test_an_exception_in_a_policy_of_ones_own_is_named() -> None:
    with pytest.raises(PluginError) as caught:
        replay(batching=own(Raises))
    said = str(caught.value)
    assert "Raises.schedule() raised KeyError: 'no such thing'" in said
    assert "test_invariants.py:" in said


def test_an_overbooked_memory_is_found() -> None:
    with pytest.raises(InvariantBroken, match="blocks leak"):
        replay(kv=own(Overbooks))


@pytest.mark.parametrize("more", [(), ("compare", "continuous", "chunked")])
def test_a_checked_replay_is_the_same(
    more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[Batch] = []
    walk = InvariantChecked._walk

    def counted(self: InvariantChecked, batch: Batch) -> None:
        walks.append(batch)
        walk(self, batch)

    monkeypatch.setattr(InvariantChecked, "_walk", counted)
    command = ("replay", *more, *SERVER, SAMPLE, "--limit", 20)
    plain = servetwin(*command)
    assert not walks
    checked = servetwin(*command, "--check")
    assert len(walks) > 20
    assert _figures(checked.out) == _figures(plain.out)


def _figures(text: str) -> list[str]:
    """All but how long it took."""
    return [line for line in text.splitlines() if not line.startswith("simulated ")]
