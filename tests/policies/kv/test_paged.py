"""KV memories as state machines: nothing leaks, nothing overlaps, whatever the order of calls."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from policies.config import PolicyConfig
from policies.config import PrefixIndex as PrefixIndexName
from policies.kv.contiguous import ContiguousKV
from policies.kv.paged import PagedKV
from policies.lockstep import Lockstep
from policies.sequence import Sequence
from workloads.errors import PolicyError

STATEFUL = settings(stateful_step_count=40)


class PagedMachine(RuleBasedStateMachine):
    """Sequences of three prompt families come, are computed in chunks, decode together and go."""

    config = PolicyConfig(kv_tokens=96, block_tokens=4, prefix_cache=True)

    def __init__(self) -> None:
        super().__init__()
        self.memory = PagedKV(self.config)
        self.prefilling: list[Sequence] = []
        self.decodes = Lockstep(4)
        self.made = 0

    @rule(
        prompt=st.integers(1, 40),
        family=st.integers(0, 2),
        shared=st.integers(0, 10),
        named=st.integers(0, 10),
        key_blocks=st.integers(1, 3),
    )
    def admit(self, prompt: int, family: int, shared: int, named: int, key_blocks: int) -> None:
        self.made += 1
        keys = [
            1000 * key_blocks + 100 * family + j if j < shared else 10_000 * self.made + j
            for j in range(min(named, -(-prompt // (4 * key_blocks))))
        ]
        seq = Sequence(str(self.made), 0.0, prompt, 60, keys, key_blocks=key_blocks)
        hit = self.memory.cached_prefix(seq)
        free = self.memory.free_tokens()
        assert hit < prompt
        if self.memory.reserve(seq, prompt):
            seq.computed_tokens = hit
            self.prefilling.append(seq)
        else:
            assert self.memory.free_tokens() == free
            assert not seq.blocks

    @precondition(lambda self: self.prefilling)
    @rule(data=st.data())
    def compute(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(self.prefilling))
        end = data.draw(st.integers(seq.computed_tokens + 1, seq.prompt_tokens))
        self.memory.commit(seq, end)
        seq.computed_tokens = end
        if end == seq.prompt_tokens:
            self.prefilling.remove(seq)
            seq.generated_tokens = 1
            self.decodes.join(seq)

    @precondition(lambda self: self.decodes.size)
    @rule(steps=st.integers(1, 9))
    def grow(self, steps: int) -> None:
        promised = self.memory.repeatable_steps(self.decodes, steps)
        assert self.memory.grow(self.decodes, promised)
        ended = self.decodes.advance(promised)
        for seq in ended:
            self.memory.release(seq)
        if promised < steps and not ended:
            assert not self.memory.grow(self.decodes, 1)

    @precondition(lambda self: self.prefilling or self.decodes.size)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from([*self.prefilling, *self.decodes]))
        if seq in self.prefilling:
            self.prefilling.remove(seq)
        else:
            self.decodes.leave(seq)
        self.memory.release(seq)

    @invariant()
    def the_laws_hold(self) -> None:
        held = [*self.prefilling, *self.decodes]
        for seq in self.decodes:
            self.memory.table(seq, seq.computed_tokens)
        self.memory.check(held)
        usage = self.memory.usage(held)
        assert usage.shared_tokens <= usage.live_tokens <= usage.capacity_tokens
        assert usage.free_tokens + usage.cached_tokens == self.memory.free_tokens()


def paged_machine(prefix_index: PrefixIndexName, eviction: str) -> type[PagedMachine]:
    config = PolicyConfig(
        kv_tokens=96,
        block_tokens=4,
        prefix_cache=True,
        prefix_index=prefix_index,
        eviction=eviction,
    )
    return type(f"Paged_{prefix_index}_{eviction}", (PagedMachine,), {"config": config})


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
        largest = self.memory.usage(self.held).free_tokens
        region = 1 << (prompt + output - 1).bit_length()
        assert self.memory.reserve(seq, prompt) == (region <= largest)
        if seq.region_start >= 0:
            assert seq.region_start % seq.region_tokens == 0
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
        self.memory.check(self.held)


def test_contiguous_regions() -> None:
    run_state_machine_as_test(ContiguousMachine, settings=STATEFUL)


@pytest.mark.parametrize("eviction", ["lru", "lfu", "fifo"])
@pytest.mark.parametrize("prefix_index", ["hash", "radix"])
def test_paged_blocks(prefix_index: PrefixIndexName, eviction: str) -> None:
    run_state_machine_as_test(paged_machine(prefix_index, eviction), settings=STATEFUL)


@given(data=st.data())
def test_hashes_and_tree_find_and_evict_the_same_under_lru(data: st.DataObject) -> None:
    """Two independent ways to keep prefixes; prompts are computed whole, one after the other."""
    memories = [
        PagedKV(PolicyConfig(kv_tokens=80, block_tokens=4, prefix_cache=True, prefix_index=index))
        for index in ("hash", "radix")
    ]
    held: list[list[Sequence]] = [[], []]
    for made in range(data.draw(st.integers(1, 30))):
        releases: bool = data.draw(st.booleans())
        if held[0] and releases:
            gone = data.draw(st.integers(0, len(held[0]) - 1))
            for memory, seqs in zip(memories, held, strict=True):
                memory.release(seqs.pop(gone))
            continue
        prompt, family = data.draw(st.integers(1, 30)), data.draw(st.integers(0, 1))
        shared = data.draw(st.integers(0, 7))
        keys = [j + 100 * (family if j < shared else 2 + made) for j in range(prompt // 4)]
        seqs = [Sequence(str(made), 0.0, prompt, 1, keys) for _ in memories]
        hits = [m.cached_prefix(s) for m, s in zip(memories, seqs, strict=True)]
        taken = [m.reserve(s, prompt) for m, s in zip(memories, seqs, strict=True)]
        assert hits[0] == hits[1]
        assert taken[0] == taken[1]
        for memory, seq, seqs_held in zip(memories, seqs, held, strict=True):
            if taken[0]:
                seq.computed_tokens = hits[0]
                memory.commit(seq, prompt)
                seq.computed_tokens = prompt
                seqs_held.append(seq)
        assert memories[0].free_tokens() == memories[1].free_tokens()


@pytest.mark.parametrize(
    ("eviction", "kept"),
    [("lru", "b"), ("lfu", "a"), ("fifo", "b")],
)
def test_the_order_of_eviction(eviction: str, kept: str) -> None:
    """a is used three times, then b once; one of them must go for c."""
    for index in ("hash", "radix"):
        memory = PagedKV(
            PolicyConfig(
                kv_tokens=12,
                block_tokens=4,
                prefix_cache=True,
                prefix_index=index,
                eviction=eviction,
            )
        )
        for name in "aaabc":
            use(memory, name)
        found = {name for name in "ab" if memory.cached_prefix(prompt_of(name))}
        assert found == {kept}, index


def prompt_of(name: str) -> Sequence:
    return Sequence(name, 0.0, 5, 1, [ord(name)])


def use(memory: PagedKV, name: str) -> None:
    seq = prompt_of(name)
    cached = memory.cached_prefix(seq)
    assert memory.reserve(seq, 5)
    seq.computed_tokens = cached
    memory.commit(seq, 5)
    seq.computed_tokens = 5
    memory.release(seq)


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
    assert seq.region_tokens == region
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
            {"queue_order": "priorty"},
            "queue_order: 'priorty' is not possible; did you mean 'priority'?",
        ),
        (
            {"token_budget": 8, "max_seqs": 9},
            "token_budget: 8 is not possible; it must be at least max_seqs (9): a step feeds every "
            "running sequence",
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
