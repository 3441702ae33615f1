"""The index by block hash decides as a flat table with one entry per block."""

from typing import Any

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

from policies.prefix.block_hashes import BlockHashes
from policies.prefix.prefix_index import PrefixIndex
from policies.sequence import Sequence
from tests.support.reference_index import ReferenceIndex

ORDERS = ["lru", "lfu", "fifo"]
STATEFUL = settings(stateful_step_count=60)


class Twins(RuleBasedStateMachine):
    """Every call goes to both indexes; prompts of three families come, share, part and go."""

    eviction = "lru"

    def __init__(self) -> None:
        super().__init__()
        self.indexes: tuple[PrefixIndex, PrefixIndex] = (
            BlockHashes(self.eviction),
            ReferenceIndex(self.eviction),
        )
        self.pairs: list[tuple[Sequence, Sequence]] = []
        self.made = 0

    @rule(
        blocks=st.integers(1, 12),
        family=st.integers(0, 1),
        shared=st.integers(0, 12),
        named=st.integers(0, 12),
        key_blocks=st.sampled_from([1, 1, 3]),
    )
    def begin(self, blocks: int, family: int, shared: int, named: int, key_blocks: int) -> None:
        self.made += 1
        keys = [
            1000 * key_blocks + 100 * family + j if j < shared else 10_000 * self.made + j
            for j in range(min(named, -(-blocks // key_blocks)))
        ]
        pair = [Sequence(str(self.made), 0.0, blocks, 9, keys, key_blocks=key_blocks) for _ in "ab"]
        limit = blocks - 1
        found = [index.find(seq, limit) for index, seq in zip(self.indexes, pair, strict=True)]
        assert found[0] == found[1]
        for index, seq in zip(self.indexes, pair, strict=True):
            index.hold(seq, limit)
        self.pairs.append((pair[0], pair[1]))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def insert(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(self.pairs))
        if pair[0].keyed_blocks < pair[0].prompt_tokens:
            blocks = data.draw(st.integers(pair[0].keyed_blocks + 1, pair[0].prompt_tokens))
            for index, seq in zip(self.indexes, pair, strict=True):
                index.insert(seq, blocks)

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(self.pairs))
        if pair[0].keyed_blocks < pair[0].prompt_tokens:
            return  # answers begin when the prompt is computed
        children = (pair[0].fork(), pair[1].fork())
        for index, seq, child in zip(self.indexes, pair, children, strict=True):
            index.share(seq, child)
        self.pairs.append(children)

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(self.pairs))
        self.pairs.remove(pair)
        held = [index.release(seq)[0] for index, seq in zip(self.indexes, pair, strict=True)]
        assert held[0] == held[1]

    @precondition(lambda self: self.indexes[0].idle_blocks)
    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        blocks = data.draw(st.integers(1, self.indexes[0].idle_blocks))
        for index in self.indexes:
            index.evict(blocks)

    @invariant()
    def both_are_alike(self) -> None:
        fast, slow = self.indexes
        assert (fast.idle_blocks, fast.held_blocks) == (slow.idle_blocks, slow.held_blocks)
        for one, other in self.pairs:
            assert one.keyed_blocks == other.keyed_blocks
            assert fast.held(one) == slow.held(other)
            limit = one.prompt_tokens
            assert fast.find(one, limit) == slow.find(other, limit)


@pytest.mark.parametrize("eviction", ORDERS)
def test_runs_decide_as_single_blocks(eviction: str) -> None:
    machine: Any = type(f"Twins_{eviction}", (Twins,), {"eviction": eviction})
    run_state_machine_as_test(machine, settings=STATEFUL)
