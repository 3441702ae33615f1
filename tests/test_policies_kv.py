"""KV memories as state machines: nothing leaks, nothing overlaps, whatever the order of calls."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from policies.config import PolicyConfig
from policies.contiguous import ContiguousKV
from policies.paged import PagedKV
from policies.sequence import Sequence
from workloads.errors import PolicyError


class PagedMachine(RuleBasedStateMachine):
    """Sequences of three prompt families come, grow and go on 24 blocks of 4 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = PagedKV(PolicyConfig(kv_tokens=96, block_tokens=4, prefix_cache=True))
        self.held: list[Sequence] = []
        self.made = 0

    @rule(prompt=st.integers(1, 40), family=st.integers(0, 2), shared=st.integers(0, 10))
    def admit(self, prompt: int, family: int, shared: int) -> None:
        self.made += 1
        keys = [
            100 * family + j if j < shared else 10_000 * self.made + j for j in range(prompt // 4)
        ]
        seq = Sequence(str(self.made), 0.0, prompt, 60, keys)
        hit = self.memory.cached_prefix(seq)
        free = self.memory.free_tokens()
        assert hit < prompt
        if self.memory.reserve(seq, prompt):
            seq.computed_tokens = hit
            self.memory.commit(seq, prompt)
            seq.computed_tokens = prompt
            self.held.append(seq)
        else:
            assert self.memory.free_tokens() == free
            assert not seq.blocks

    @precondition(lambda self: self.held)
    @rule(data=st.data(), steps=st.integers(1, 9))
    def grow(self, data: st.DataObject, steps: int) -> None:
        seq = data.draw(st.sampled_from(self.held))
        promised = self.memory.quiet_steps([seq], steps)
        if promised:
            assert self.memory.reserve(seq, seq.computed_tokens + promised)
            seq.computed_tokens += promised
        if promised < steps:
            assert not self.memory.reserve(seq, seq.computed_tokens + 1)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(self.held))
        self.held.remove(seq)
        self.memory.release(seq)

    @invariant()
    def the_laws_hold(self) -> None:
        self.memory.check(self.held)
        keyed = [(k, b) for s in self.held for k, b in zip(s.block_keys, s.blocks, strict=False)]
        usage = self.memory.usage()
        assert usage.shared_tokens <= usage.live_tokens <= 4 * len({b for _, b in keyed}) + 96


class ContiguousMachine(RuleBasedStateMachine):
    """Regions of random length come and go in 100 tokens."""

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
        largest = self.memory.usage().free_tokens
        assert self.memory.reserve(seq, prompt) == (prompt + output <= largest)
        if seq.region_start >= 0:
            self.held.append(seq)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(self.held))
        self.held.remove(seq)
        self.memory.release(seq)

    @invariant()
    def the_laws_hold(self) -> None:
        self.memory.check(self.held)


TestPaged = PagedMachine.TestCase
TestContiguous = ContiguousMachine.TestCase
TestPaged.settings = TestContiguous.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)


@pytest.mark.parametrize(
    ("reservation", "region"),
    [("max", 2048), ("pow2", 256), ("exact", 140)],
)
def test_contiguous_reserves_the_longest_the_next_power_of_two_or_the_exact(
    reservation: str, region: int
) -> None:
    config = PolicyConfig(kv="contiguous", kv_tokens=4096, reservation=reservation)  # type: ignore[arg-type]
    memory = ContiguousKV(config)
    seq = Sequence("s", 0.0, 100, 40)
    assert memory.reserve(seq, 100)
    assert seq.region_tokens == region
    assert memory.usage().internal_waste_tokens == region - 139


def test_external_fragmentation_is_real() -> None:
    memory = ContiguousKV(PolicyConfig(kv="contiguous", kv_tokens=40, reservation="exact"))
    seqs = [Sequence(str(i), 0.0, 5, 5) for i in range(4)]
    for seq in seqs:
        assert memory.reserve(seq, 5)
    memory.release(seqs[0])
    memory.release(seqs[2])
    assert not memory.reserve(Sequence("wide", 0.0, 10, 10), 10)
    usage = memory.usage()
    assert (usage.free_tokens, usage.external_waste_tokens) == (10, 10)


def test_a_fully_cached_prompt_still_computes_its_last_block() -> None:
    memory = PagedKV(PolicyConfig(kv_tokens=64, block_tokens=4, prefix_cache=True))
    first = Sequence("a", 0.0, 8, 1, [1, 2])
    assert memory.reserve(first, 8)
    memory.commit(first, 8)
    assert memory.cached_prefix(Sequence("b", 0.0, 8, 1, [1, 2])) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kv_tokens": 0}, "kv_tokens: 0 is not possible; it must be at least 1"),
        ({"kv_tokens": 8}, "kv_tokens: 8 is not possible; it must be at least one block"),
        ({"max_seqs": 0}, "max_seqs: 0 is not possible; it must be at least 1"),
        ({"token_budget": -1}, "token_budget: -1 is not possible; it must be at least 1"),
        (
            {"wait_limit_s": float("nan")},
            "wait_limit_s: nan is not possible; it must be a finite number, at least 0",
        ),
        (
            {"reservation": "half"},
            "reservation: 'half' is not possible; it must be one of max, pow2, exact",
        ),
        (
            {"kv": "contiguous", "prefix_cache": True},
            "prefix_cache: contiguous KV memory cannot share; use kv: paged",
        ),
    ],
)
def test_impossible_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        PolicyConfig(**settings)  # type: ignore[arg-type]
    assert str(caught.value) == message
