"""The index of all blocks decides as a flat list of blocks, copies included, does."""

from collections import defaultdict
from functools import partial
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from servetwin.policies.prefix.block_runs import BlockRuns
from servetwin.policies.sequence import Sequence
from tests.support.counted_lines import lines_run

Name = tuple[int, int]
"""Key and place of a block."""


class FlatBlocks:
    """Every block on its own: which sequences hold it, its key, and how long it has been idle."""

    def __init__(self) -> None:
        self.by_name: defaultdict[Name, list[int]] = defaultdict(list)
        self.names: dict[int, Name] = {}
        self.holders: defaultdict[int, int] = defaultdict(int)
        self.idle: list[int] = []
        self.held: dict[Sequence, list[int]] = {}

    def find(self, seq: Sequence, limit: int) -> list[int]:
        found = []
        for place in range(limit):
            blocks = self.by_name.get(name_of(seq, place))
            if not blocks:
                break
            found.append(blocks[0])
        return found

    def hold(self, seq: Sequence, limit: int) -> None:
        self.held[seq] = self.find(seq, limit)
        for block in self.held[seq]:
            self.holders[block] += 1
            if block in self.idle:
                self.idle.remove(block)

    def share(self, seq: Sequence, child: Sequence) -> None:
        self.held[child] = list(self.held[seq])
        for block in self.held[child]:
            self.holders[block] += 1

    def insert(self, seq: Sequence, blocks: int) -> None:
        held = self.held[seq]
        while len(held) < blocks:
            block, name = len(self.names), name_of(seq, len(held))
            self.names[block] = name
            self.by_name[name].append(block)
            self.holders[block] = 1
            held.append(block)

    def release(self, seq: Sequence) -> None:
        for block in reversed(self.held.pop(seq)):
            self.holders[block] -= 1
            if not self.holders[block]:
                self.idle.append(block)

    def evict(self, blocks: int) -> None:
        for block in self.idle[:blocks]:
            self.by_name[self.names[block]].remove(block)
        del self.idle[:blocks]


def name_of(seq: Sequence, place: int) -> Name:
    named = min(len(seq.block_keys) * seq.key_blocks, seq.prompt_tokens)
    return (seq.block_keys[place // seq.key_blocks] if place < named else seq.own_key, place)


class Twins(RuleBasedStateMachine):
    """Every call goes to both; prompts of two families come, share, part, go and come back."""

    checked: ClassVar[int] = 0
    """How often the laws were checked."""

    def __init__(self) -> None:
        super().__init__()
        self.runs, self.flat = BlockRuns("lru", block_tokens=1), FlatBlocks()
        self.seqs: list[Sequence] = []
        self.gone: list[Sequence] = []

    @rule(
        blocks=st.integers(1, 12),
        family=st.integers(0, 1),
        shared=st.integers(0, 12),
        key_blocks=st.sampled_from([1, 3]),
    )
    def begin(self, blocks: int, family: int, shared: int, key_blocks: int) -> None:
        number = len(self.seqs) + len(self.gone) + 1
        keys = [
            1000 * key_blocks + 100 * family + unit if unit < shared else 10_000 * number + unit
            for unit in range(-(-blocks // key_blocks))
        ]
        seq = Sequence(str(number), 0.0, blocks, 9, keys, key_blocks=key_blocks)
        seq.arrival_number = number
        self.admit(seq, blocks - 1)

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        seq = self.gone.pop(data.draw(st.integers(0, len(self.gone) - 1)))
        self.admit(seq, seq.prompt_tokens + data.draw(st.integers(0, 4)))

    def admit(self, seq: Sequence, limit: int) -> None:
        found = self.flat.find(seq, limit)
        idle = sum(block in self.flat.idle for block in found)
        assert self.runs.find(seq, limit) == (len(found), idle)
        self.runs.hold(seq, limit)
        self.flat.hold(seq, limit)
        assert seq.held.keyed_blocks == len(found)
        self.seqs.append(seq)

    @precondition(lambda self: self.seqs)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(self.seqs))
        child = seq.fork()
        child.arrival_number = len(self.seqs) + len(self.gone) + 1
        self.runs.share(seq, child)
        self.flat.share(seq, child)
        self.seqs.append(child)

    @precondition(lambda self: self.seqs)
    @rule(data=st.data(), more=st.integers(1, 6))
    def fill(self, data: st.DataObject, more: int) -> None:
        seq = data.draw(st.sampled_from(self.seqs))
        blocks = seq.held.keyed_blocks + more
        self.runs.insert(seq, blocks)
        self.flat.insert(seq, blocks)

    @precondition(lambda self: self.seqs)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        seq = self.seqs.pop(data.draw(st.integers(0, len(self.seqs) - 1)))
        held, _ = self.runs.release(seq)
        assert held == len(self.flat.held[seq])
        self.flat.release(seq)
        self.gone.append(seq)

    @precondition(lambda self: self.flat.idle)
    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        blocks = data.draw(st.integers(1, len(self.flat.idle)))
        self.runs.evict(blocks)
        self.flat.evict(blocks)

    @invariant()
    def the_same_blocks_are_held_and_idle(self) -> None:
        type(self).checked += 1
        assert self.runs.idle_blocks == len(self.flat.idle)
        assert self.runs.held_blocks == sum(n > 0 for n in self.flat.holders.values())
        for seq in self.seqs:
            held = list(self.runs.runs(seq))
            assert sum(run.size for run in held) == len(self.flat.held[seq])
            numbers = [self.flat.holders[block] for block in reversed(self.flat.held[seq])]
            assert [run.holders for run in held for _ in range(run.size)] == numbers


def test_the_flat_list_and_the_runs_agree() -> None:
    run_state_machine_as_test(Twins, settings=settings(stateful_step_count=60))
    assert Twins.checked > 0


def test_a_copy_is_found_when_the_first_one_is_gone() -> None:
    index = BlockRuns("lru", block_tokens=4)
    first, second = (Sequence(name, 0.0, 8, 1, (1, 2)) for name in "ab")
    for number, seq in enumerate((first, second), 1):
        seq.arrival_number = number
        index.hold(seq, 0)
    index.insert(first, 2)
    index.insert(second, 2)
    index.release(first)
    index.evict(2)
    assert index.find(first, 2) == (2, 0)


def test_only_its_own_request_finds_what_no_key_names() -> None:
    index = BlockRuns("lru", block_tokens=4)
    own, other = Sequence("a", 0.0, 6, 20, (1,)), Sequence("b", 0.0, 6, 20, (1,))
    own.arrival_number, other.arrival_number = 1, 2
    index.insert(own, 4)
    index.release(own)
    assert index.find(own, 4) == (4, 4)
    assert index.find(other, 4) == (1, 1)


def in_chunks(keys: int) -> None:
    """Fill a prompt in four chunks, find half of it from another prompt, and evict both."""
    index = BlockRuns("lru", block_tokens=1)
    first = Sequence("a", 0.0, 4 * keys, 1, range(keys), key_blocks=4)
    parting = [*range(keys // 2), *range(keys, keys + keys // 2)]
    second = Sequence("b", 0.0, 4 * keys, 1, parting, key_blocks=4)
    second.arrival_number = 1
    for seq, found in ((first, 0), (second, 2 * keys)):
        assert index.find(seq, 4 * keys) == (found, found)
        index.hold(seq, 4 * keys)
        for chunk in range(1, 5):
            index.insert(seq, max(found, keys * chunk))
        index.release(seq)
    index.evict(6 * keys)
    assert (index.idle_blocks, index.held_blocks) == (0, 0)


def test_the_work_for_a_prompt_does_not_grow_with_its_keys() -> None:
    few, many = (lines_run(partial(in_chunks, keys)) for keys in (8, 800))
    assert many < 1.3 * few


def test_the_same_prompt_at_once_is_copied_block_by_block_only_where_it_is_twice() -> None:
    index = BlockRuns("lru", block_tokens=1)
    first = Sequence("a", 0.0, 400, 1, range(100), key_blocks=4)
    second = Sequence("b", 0.0, 400, 1, range(100), key_blocks=4)
    second.arrival_number = 1
    index.insert(first, 400)
    index.hold(second, 390)
    index.insert(second, 400)
    assert [run.size for run in index.runs(first)] == [1] * 10 + [390]
