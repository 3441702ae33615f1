"""Paged memory as a state machine: nothing leaks or overlaps, whatever the order of calls."""

from typing import ClassVar

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

from servetwin.policies.config import PolicyConfig
from servetwin.policies.config import PrefixIndex as PrefixIndexName
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.sequence import Sequence
from tests.support.effort import examples

STATEFUL = settings(max_examples=examples(50), stateful_step_count=40)


class PagedMachine(RuleBasedStateMachine):
    """Sequences of three prompt families come, are computed in chunks, decode together and go."""

    config = PolicyConfig(kv_tokens=96, block_tokens=4, prefix_cache=True)

    checked: ClassVar[int] = 0
    """How often the laws were checked."""

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
        first_chunk=st.integers(1, 40),
    )
    def admit(
        self, prompt: int, family: int, shared: int, named: int, key_blocks: int, first_chunk: int
    ) -> None:
        self.made += 1
        keys = [
            1000 * key_blocks + 100 * family + j if j < shared else 10_000 * self.made + j
            for j in range(min(named, -(-prompt // (4 * key_blocks))))
        ]
        seq = Sequence(str(self.made), 0.0, prompt, 60, keys, key_blocks=key_blocks)
        seq.arrival_number = self.made  # It names the blocks of its own, as in a scheduler.
        hit = self.memory.cached_prefix(seq)
        free = self.memory.free_tokens()
        assert hit < prompt
        if self.memory.reserve(seq, min(prompt, hit + first_chunk)):
            seq.base_computed_tokens = hit
            self.prefilling.append(seq)
        else:
            assert self.memory.free_tokens() == free
            assert not seq.blocks

    @precondition(lambda self: self.prefilling)
    @rule(data=st.data())
    def compute(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(self.prefilling))
        end = data.draw(st.integers(seq.computed_tokens + 1, seq.prompt_tokens))
        free = self.memory.free_tokens()
        if not self.memory.extend(seq, end):
            assert free < end - seq.computed_tokens
            assert self.memory.free_tokens() == free
            return
        self.memory.commit(seq, end)
        seq.base_computed_tokens = end
        if end == seq.prompt_tokens:
            self.prefilling.remove(seq)
            seq.base_generated_tokens = 1
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
        type(self).checked += 1
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


@pytest.mark.parametrize("eviction", ["lru", "lfu", "fifo"])
@pytest.mark.parametrize("prefix_index", ["radix", "blocks"])
def test_paged_blocks(prefix_index: PrefixIndexName, eviction: str) -> None:
    machine = paged_machine(prefix_index, eviction)
    run_state_machine_as_test(machine, settings=STATEFUL)
    assert machine.checked > 0


@pytest.mark.parametrize("eviction", ["lru", "lfu", "fifo"])
@given(data=st.data())
def test_what_an_index_learns_late_changes_no_answer(eviction: str, data: st.DataObject) -> None:
    """One of two memories is looked into after every call; the other is asked only when needed."""
    config = paged_machine("blocks", eviction).config
    seen, unseen = Answers(PagedKV(config)), Answers(PagedKV(config))
    for made in range(data.draw(st.integers(5, 40))):
        call = data.draw(st.sampled_from(["admit", "compute", "compute", "grow", "release"]))
        place, number = data.draw(st.integers(0, 30)), data.draw(st.integers(1, 12))
        assert seen.of(call, made, place, number) == unseen.of(call, made, place, number)
        seen.memory.usage(seen.running)
        assert seen.memory.free_tokens() == unseen.memory.free_tokens()
        unseen.memory.check(unseen.running)
    assert seen.memory.usage(seen.running) == unseen.memory.usage(unseen.running)


class Answers:
    """What a memory answers to calls for prompts of two families and their answers."""

    def __init__(self, memory: PagedKV) -> None:
        self.memory, self.running = memory, list[Sequence]()
        self._waiting = list[Sequence]()

    def of(self, call: str, made: int, place: int, number: int) -> object:
        if call == "admit":
            return self._admit(made, place, number)
        if not self.running:
            return None
        seq = self.running[place % len(self.running)]
        if call == "release":
            self.running.remove(seq)
            self.memory.release(seq)
            self._waiting.append(seq)  # and comes back, with what it has computed of its answer
            return seq.request_id
        tokens = seq.computed_tokens + number
        if not self.memory.extend(seq, tokens):
            return False
        seq.base_generated_tokens = max(0, tokens - seq.prompt_tokens)
        if call == "compute":
            self.memory.commit(seq, tokens)
        seq.base_computed_tokens = tokens
        return True

    def _admit(self, made: int, place: int, number: int) -> object:
        if self._waiting and place % 3:
            seq = self._waiting.pop(place % len(self._waiting))
        else:
            keys = [j + 100 * (place % 2 if j < number // 2 else 2 + made) for j in range(number)]
            seq = Sequence(str(made), 0.0, 4 * number + place % 4, 60, keys)
            seq.arrival_number = made
        hit, total = self.memory.cached_prefix(seq), seq.prompt_tokens + seq.generated_tokens
        if not self.memory.reserve_part(seq, min(total, hit + 5), total):
            self._waiting.append(seq)
            return hit, False
        seq.base_computed_tokens = hit
        self.running.append(seq)
        return hit, True


@pytest.mark.parametrize(
    ("eviction", "kept"),
    [("lru", "b"), ("lfu", "a"), ("fifo", "b")],
)
def test_the_order_of_eviction(eviction: str, kept: str) -> None:
    """a is used three times, then b once; one of them must go for c."""
    for index in ("radix", "blocks"):
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
    seq.base_computed_tokens = cached
    memory.commit(seq, 5)
    seq.base_computed_tokens = 5
    memory.release(seq)


def test_a_fully_cached_prompt_still_computes_its_last_block() -> None:
    memory = PagedKV(PolicyConfig(kv_tokens=64, block_tokens=4, prefix_cache=True))
    first = Sequence("a", 0.0, 8, 1, [1, 2])
    assert memory.reserve(first, 8)
    memory.commit(first, 8)
    assert memory.cached_prefix(Sequence("b", 0.0, 8, 1, [1, 2])) == 4
