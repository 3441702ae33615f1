"""The index by block hash decides as a flat table with one entry per block."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from servetwin.policies.prefix.block_hashes import BlockHashes
from servetwin.policies.prefix.prefix_index import PrefixIndex
from servetwin.policies.sequence import Sequence
from tests.support.reference_index import ReferenceIndex

MOST_BLOCKS = 12
STEPS = 250


class Twins:
    """Every call goes to both indexes; prompts of two families come, share, part and go."""

    def __init__(self, eviction: str, draw: Random) -> None:
        self.indexes: tuple[PrefixIndex, PrefixIndex] = (
            BlockHashes(eviction),
            ReferenceIndex(eviction),
        )
        self.draw = draw
        self.key_blocks = draw.choice([1, 1, 3])
        self.pairs: list[tuple[Sequence, Sequence]] = []
        self.made = 0

    def begin(self) -> None:
        self.made += 1
        draw, size = self.draw, self.key_blocks
        blocks, family = draw.randint(1, MOST_BLOCKS), draw.randrange(2)
        shared, named = draw.randint(0, MOST_BLOCKS), draw.choice([0, 2, MOST_BLOCKS, MOST_BLOCKS])
        keys = [
            100 * family + j if j < shared else 10_000 * self.made + j
            for j in range(min(named, -(-blocks // size)))
        ]
        one, other = (Sequence("", 0.0, blocks, 9, keys, key_blocks=size) for _ in self.indexes)
        limit = blocks - draw.randrange(2)
        self.same(lambda index, seq: index.find(seq, limit), (one, other))
        self.same(lambda index, seq: index.hold(seq, limit), (one, other))
        self.pairs.append((one, other))

    def insert(self) -> None:
        pair = self.draw.choice(self.pairs)
        done, blocks = pair[0].keyed_blocks, pair[0].prompt_tokens
        if done < blocks:
            end = self.draw.choice([blocks, self.draw.randint(done + 1, blocks)])
            self.same(lambda index, seq: index.insert(seq, end), pair)

    def fork(self) -> None:
        pair = self.draw.choice(self.pairs)
        if pair[0].keyed_blocks == pair[0].prompt_tokens:  # answers begin when it is computed
            children = (pair[0].fork(), pair[1].fork())
            for index, seq, child in zip(self.indexes, pair, children, strict=True):
                index.share(seq, child)
            self.pairs.append(children)

    def release(self) -> None:
        pair = self.pairs.pop(self.draw.randrange(len(self.pairs)))
        self.same(lambda index, seq: index.release(seq)[0], pair)

    def evict(self) -> None:
        idle = self.indexes[0].idle_blocks
        if idle:
            blocks = self.draw.choice([1, self.draw.randint(1, idle)])
            for index in self.indexes:
                index.evict(blocks)

    def same(
        self, call: Callable[[PrefixIndex, Sequence], object], pair: tuple[Sequence, Sequence]
    ) -> None:
        answers = [call(index, seq) for index, seq in zip(self.indexes, pair, strict=True)]
        assert answers[0] == answers[1]

    def check(self) -> None:
        fast, slow = self.indexes
        assert (fast.idle_blocks, fast.held_blocks) == (slow.idle_blocks, slow.held_blocks)
        for pair in self.pairs:
            assert pair[0].keyed_blocks == pair[1].keyed_blocks
            self.same(lambda index, seq: index.held(seq), pair)
            self.same(lambda index, seq: index.find(seq, seq.prompt_tokens), pair)

    def run(self, steps: int) -> None:
        others = [self.insert, self.insert, self.insert, self.release, self.evict, self.fork]
        for _ in range(steps):
            crowded = len(self.pairs) > 6
            choices = [*others, *([self.release] * 3 if crowded else [self.begin, self.begin])]
            self.draw.choice(choices if self.pairs else [self.begin])()
            self.check()


@pytest.mark.parametrize("eviction", ["lru", "lfu", "fifo"])
def test_runs_decide_as_single_blocks(eviction: str) -> None:
    for seed in range(40):
        Twins(eviction, Random(seed)).run(STEPS)


OWN_ORDER = """
class Mixed:
    def rank(self, uses, born, now):
        return (7 * uses + 3 * born + now) % 5
"""


def test_an_order_of_ones_own_ranks_single_blocks(tmp_path: Path) -> None:
    path = tmp_path / "mixed.py"
    path.write_text(OWN_ORDER)
    for seed in range(10):
        Twins(f"{path}:Mixed", Random(seed)).run(STEPS)
