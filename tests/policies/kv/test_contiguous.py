"""Contiguous memory: how long a region is, what it wastes, and when there is none."""

from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from servetwin.policies.config import PolicyConfig, Reservation
from servetwin.policies.kv.contiguous import ContiguousKV
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.protocols import KVUsage
from servetwin.policies.sequence import Sequence
from tests.support.scheduler_steps import sequence

STATEFUL = settings(stateful_step_count=40)


def memory_of(tokens: int = 64, reservation: Reservation = "exact", **more: Any) -> ContiguousKV:
    return ContiguousKV(
        PolicyConfig(kv="contiguous", kv_tokens=tokens, reservation=reservation, **more)
    )


@pytest.mark.parametrize(
    ("reservation", "prompt", "output", "region"),
    [
        ("exact", 5, 3, 8),
        ("exact", 5, 4, 16),
        ("pow2", 4, 3, 8),
        ("pow2", 5, 3, 16),  # 5 + 4
        ("pow2", 4, 5, 16),  # 4 + 8
        ("pow2", 20, 9, 32),  # 20 + 16 is more than the model's 32
        ("pow2", 30, 9, 64),  # 39 tokens, though the model has 32
        ("max", 1, 1, 32),
        ("max", 30, 3, 64),
    ],
)
def test_the_length_of_a_region(
    reservation: Reservation, prompt: int, output: int, region: int
) -> None:
    memory = memory_of(128, reservation, max_model_len=32)
    seq = sequence("a", prompt, output)
    assert memory.reserve(seq, prompt)
    assert (seq.region_start, seq.held.region_tokens) == (0, region)
    assert memory.free_tokens() == 128 - region


def test_released_regions_are_free_again() -> None:
    memory = memory_of()
    seq = sequence("a", 20, 12)
    assert memory.reserve(seq, 20)
    memory.release(seq)
    assert (seq.region_start, seq.held.region_tokens, memory.free_tokens()) == (-1, 0, 64)
    memory.release(seq)
    assert memory.free_tokens() == 64


def test_the_watermark_stays_free() -> None:
    """A quarter of 64 is 16: three regions of 16 may be taken, and no fourth."""
    memory = memory_of(watermark=0.25)
    assert [memory.reserve(sequence(name, 10, 6), 10) for name in "abcd"] == [True] * 3 + [False]
    assert memory.free_tokens() == 16


def test_a_sequence_that_never_fits_is_told_which_region_it_needs() -> None:
    memory = memory_of(100)
    assert memory.refusal(sequence("a", 40, 24)) is None
    assert memory.refusal(sequence("a", 40, 25)) == (
        "needs a region of 128 KV tokens (reserving exact), the memory of 100 has none longer "
        "than 64"
    )
    assert memory_of(100, watermark=0.36).refusal(sequence("a", 40, 24)) is None
    assert memory_of(100, watermark=0.37).refusal(sequence("a", 40, 24)) is not None


def test_usage_adds_up() -> None:
    memory = memory_of()
    first, second = sequence("a", 5, 4), sequence("b", 3, 2)
    for seq in (first, second):
        assert memory.reserve(seq, seq.prompt_tokens)
        seq.base_computed_tokens = seq.prompt_tokens
    assert memory.usage([first, second]) == KVUsage(
        capacity_tokens=64,
        live_tokens=8,
        reserved_tokens=3 + 1,
        internal_waste_tokens=(16 - 8) + (8 - 4),
        external_waste_tokens=40 - 32,
        cached_tokens=0,
        free_tokens=32,
    )


@pytest.mark.parametrize(
    ("reservation", "internal", "external"),
    [
        ("exact", 1 + 1, (16 - 9) + (8 - 5)),  # a region has room for the last token, too
        ("pow2", (9 - 8) + (5 - 4), (16 - 9) + (8 - 5)),  # 5 + 4 and 3 + 2 asked for
        ("max", (20 - 8) + (20 - 4), 2 * (32 - 20)),
    ],
)
def test_rounding_counts_as_external_waste_where_that_is_asked_for(
    reservation: Reservation, internal: int, external: int
) -> None:
    memory = memory_of(64, reservation, max_model_len=20, rounding_waste="external")
    first, second = sequence("a", 5, 4), sequence("b", 3, 2)
    for seq in (first, second):
        assert memory.reserve(seq, seq.prompt_tokens)
        seq.base_computed_tokens = seq.prompt_tokens
    usage = memory.usage([first, second])
    pieces = memory.free_tokens() - usage.free_tokens
    assert (usage.live_tokens, usage.reserved_tokens) == (8, 3 + 1)
    assert usage.internal_waste_tokens == internal
    assert usage.external_waste_tokens == external + pieces
    before = memory_of(64, reservation, max_model_len=20)
    assert [before.reserve(sequence("a", 5, 4), 5), before.free_tokens()] == [
        True, 64 - first.held.region_tokens,
    ]  # fmt: skip


def test_what_a_sequence_may_grow_to_is_reserved() -> None:
    memory, seq = memory_of(), sequence("a", 5, 3)
    assert memory.grow(Lockstep(1), 99)
    assert memory.repeatable_steps(Lockstep(1), 7) == 7
    assert not memory.fork(seq, sequence("b"), 5)
    assert (memory.cached_prefix(seq), memory.table(seq, 5)) == (0, [])


@pytest.mark.parametrize(
    ("start", "tokens", "message"),
    [(8, 8, "the first region leaks"), (0, 8, "regions overlap or leak")],
)
def test_the_check_finds_regions_that_were_moved_or_shortened(
    start: int, tokens: int, message: str
) -> None:
    memory, seq = memory_of(), sequence("a", 10, 6)
    assert memory.reserve(seq, 10)
    memory.check([seq])
    seq.region_start, seq.held.region_tokens = start, tokens
    with pytest.raises(AssertionError, match=message):
        memory.check([seq])


@pytest.mark.parametrize(
    ("reservation", "region"),
    [("max", 2048), ("pow2", 512), ("exact", 256)],
)
def test_contiguous_reserves_the_longest_or_rounds_up_the_output_or_the_whole(
    reservation: str, region: int
) -> None:
    config = PolicyConfig(kv="contiguous", kv_tokens=4096, reservation=reservation)  # type: ignore[arg-type]
    memory = ContiguousKV(config)
    seq = Sequence("s", 0.0, 200, 40)
    assert memory.reserve(seq, 200)
    assert seq.held.region_tokens == region
    assert memory.usage([seq]).internal_waste_tokens == region - 239


def test_external_fragmentation_is_real() -> None:
    memory = ContiguousKV(PolicyConfig(kv="contiguous", kv_tokens=64, reservation="exact"))
    seqs = [Sequence(str(i), 0.0, 5, 5) for i in range(4)]
    for seq in seqs:
        assert memory.reserve(seq, 5)
    memory.release(seqs[0])
    memory.release(seqs[2])
    assert not memory.reserve(Sequence("wide", 0.0, 10, 10), 10)
    usage = memory.usage([seqs[1], seqs[3]])
    assert (usage.free_tokens, usage.external_waste_tokens) == (16, 16)


class ContiguousMachine(RuleBasedStateMachine):
    """Regions of random length come and go in 100 tokens."""

    checked: ClassVar[int] = 0
    """How often the laws were checked."""

    def __init__(self) -> None:
        super().__init__()
        config = PolicyConfig(
            kv="contiguous", kv_tokens=100, reservation="exact", max_model_len=100
        )
        self.memory = ContiguousKV(config)
        self.held: list[Sequence] = []

    @rule(prompt=st.integers(1, 30), output=st.integers(1, 30))
    def admit(self, prompt: int, output: int) -> None:
        seq = Sequence("s", 0.0, prompt, output)
        largest = self.memory.usage(self.held).free_tokens
        region = 1 << (prompt + output - 1).bit_length()
        assert self.memory.reserve(seq, prompt) == (region <= largest)
        if seq.region_start >= 0:
            assert seq.region_start % seq.held.region_tokens == 0
            self.held.append(seq)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(self.held))
        self.held.remove(seq)
        self.memory.release(seq)
        if not self.held:
            assert self.memory.usage([]).free_tokens == 64, "buddies are not joined"

    @invariant()
    def the_laws_hold(self) -> None:
        type(self).checked += 1
        self.memory.check(self.held)


def test_contiguous_regions() -> None:
    run_state_machine_as_test(ContiguousMachine, settings=STATEFUL)
    assert ContiguousMachine.checked > 0


def test_a_watermark_may_be_lifted_for_a_request_that_would_run_alone() -> None:
    whole = sequence("a", 60, 4)
    assert memory_of(watermark=0.25).refusal(whole) is not None
    memory = memory_of(watermark=0.25, watermark_alone=False)
    assert memory.refusal(whole) is None
    assert memory.reserve(whole, 60)
    memory.release(whole)
    assert memory.reserve(sequence("b", 30, 2), 30)
    assert not memory.reserve(sequence("c", 30, 2), 30), "beside another it holds"
