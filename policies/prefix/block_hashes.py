"""Prefix sharing by block hash (vLLM, SOSP 2023): every block is remembered on its own.

A block that is full of prompt tokens is remembered by its chained key; the first block with a key
keeps it. A prefix may go while its continuation stays, which then cannot be reached until the
prefix has been computed again. Blocks of generated tokens are not remembered
(``policies.prefix.block_runs`` keeps them).

The decisions are the same as with a flat table of one entry per block. Blocks that were always
treated alike are one run: their ranks follow each other, so no other block is evicted between them.
The orders of this package keep runs whole; of any other order a run has one block.
"""

from collections.abc import Iterator
from heapq import heappop

from servetwin.policies.prefix.eviction import EVICTION_ORDERS
from servetwin.policies.prefix.prefix_run import PrefixRun
from servetwin.policies.prefix.run_index import RunIndex
from servetwin.policies.sequence import Sequence

_ANY_SIZE = 1 << 60


class BlockHashes(RunIndex):
    """Shares blocks one by one. A run that was evicted stays a node while others are below it."""

    def __init__(self, eviction: str) -> None:
        super().__init__(eviction)
        self._longest = _ANY_SIZE if eviction in EVICTION_ORDERS else 1
        self._oldest_first = eviction == "fifo"
        """Whether the first block of a run goes first, since it was filled first."""
        self._private: dict[Sequence, list[tuple[int, int]]] = {}
        """Places (start, end) of keyed blocks that others keep, by sequence with a copy."""

    def runs(self, seq: Sequence) -> Iterator[PrefixRun]:
        """Yield the runs that the sequence holds, the last first."""
        private = self._private.get(seq)
        for run in self._line(seq):
            if private is None or not _covers(private, run.start):
                yield run

    def held(self, seq: Sequence) -> int:
        """Return how many leading blocks ``share`` would share."""
        private = self._private.get(seq)
        return private[0][0] if private else seq.keyed_blocks

    def share(self, seq: Sequence, child: Sequence) -> None:
        """Let ``child`` hold what ``seq`` holds, up to the first block of its own."""
        child.keyed_blocks = self.held(seq)
        child.prefix = None
        for run in self.runs(seq):
            if run.start < child.keyed_blocks:
                child.prefix = child.prefix or run
                self._hold(run)

    def insert(self, seq: Sequence, blocks: int) -> None:
        """Remember the blocks among the first ``blocks`` whose key is new."""
        named = min(len(seq.block_keys) * seq.key_blocks, blocks)
        if seq.keyed_blocks < named:
            self._insert_named(seq, named)
        if named <= seq.keyed_blocks < blocks:
            self._keep_unnamed(seq, blocks)

    def release(self, seq: Sequence) -> tuple[int, list[int]]:
        """Let go, the tail first, so that prefixes outlive their continuations."""
        held = 0
        for run in self.runs(seq):
            held += run.size
            if self._let_go(run, run.size if run.keys else 1):
                self._offer(run)
        numbers = seq.blocks[seq.keyed_blocks :]
        for start, end in self._private.pop(seq, ()):
            numbers += seq.blocks[start:end]
        seq.prefix = None
        seq.keyed_blocks = 0
        return held, numbers

    def evict(self, blocks: int) -> list[int]:
        """Forget so many idle blocks; return the numbers of the blocks that have one."""
        self._matched = None
        numbers: list[int] = []
        left = blocks
        while left:
            rank, run = self._idle[0]
            if run.rank != rank:
                heappop(self._idle)
                continue
            size = run.end - run.start
            if size <= left:
                heappop(self._idle)
                left -= size
                numbers += reversed(run.blocks)
                self._forget(run)
            else:
                numbers += self._forget_part(run, left)
                left = 0
        self.idle_blocks -= blocks
        return numbers

    def _insert_named(self, seq: Sequence, end: int) -> None:
        """Walk on from the last run that the sequence holds, and remember what is new."""
        keys, size, first = seq.block_keys, seq.key_blocks, seq.keyed_blocks
        run = seq.prefix or self._root(size)
        while run.end < end:
            place = run.end
            child = run.children.get(keys[place // size])
            if child is None:
                run = self._append(run, seq, first if place < first else end)
                continue
            stop = child.reach(keys)
            if not _is_kept(child):
                stop = min(stop, first if place < first else end)
            elif stop > first:
                self._note_private(seq, max(place, first), min(stop, end))
            if stop >= end and _is_kept(child):
                break
            if stop < child.end:
                child = self._split(child, stop)
            if place >= first and not _is_kept(child):
                self._fill(child, seq)
            run = child
        seq.keyed_blocks = end

    def _append(self, run: PrefixRun, seq: Sequence, end: int) -> PrefixRun:
        """Lengthen the tree below ``run``; what the sequence has not just computed is forgotten."""
        start, keys = run.end, seq.block_keys
        is_new = start >= seq.keyed_blocks
        end = min(end, start + self._longest)
        if (
            is_new
            and run is seq.prefix
            and run.holders == run.uses == 1
            and not run.children
            and not self._oldest_first
            and self._longest > 1
        ):
            run.keys = keys
            self._lengthen(run, seq, end)
            return run
        child = PrefixRun(keys, seq.key_blocks, start, end, run, 0)
        run.children[child.first_key] = child
        if is_new:
            self._fill(child, seq)
        return child

    def _fill(self, run: PrefixRun, seq: Sequence) -> None:
        run.keys = seq.block_keys
        run.born = self._rank.tick(run.size)
        self._adopt(run, seq)

    def _note_private(self, seq: Sequence, start: int, end: int) -> None:
        private = self._private.setdefault(seq, [])
        if private and private[-1][1] == start:
            start, _ = private.pop()
        private.append((start, end))

    def _split(self, run: PrefixRun, place: int) -> PrefixRun:
        """Cut a run in two; both parts keep the moments of their blocks."""
        cut = place - run.start
        head = super()._split(run, place)
        run.born += cut
        if run.rank is not None:
            now = run.rank[1]
            head.rank = self._rank.at(head.uses, head.born, now + run.size)
            self._offer(head)
            if self._oldest_first:
                run.rank = self._rank.at(run.uses, run.born, now)
                self._offer(run)
        return head

    def _forget_part(self, run: PrefixRun, blocks: int) -> list[int]:
        """Forget some blocks of an idle run: the first or the last ones."""
        if run.keys and self._oldest_first:
            head = self._split(run, run.start + blocks)
            numbers = head.blocks
            self._forget(head)
            return numbers
        end = run.end - blocks
        numbers = run.blocks[end - run.start :][::-1]
        if run.children:
            self._split(run, end)
            self._forget(run)
        else:
            del run.blocks[end - run.start :]
            run.end = end
        return numbers

    def _forget(self, run: PrefixRun) -> None:
        """Forget the blocks of an idle run; its node goes with the last node below it."""
        run.rank = None
        run.blocks = []
        self._idle_runs -= 1
        while run.keys and not run.children and not _is_kept(run):
            parent = run.parent
            assert parent is not None
            del parent.children[run.first_key]
            run = parent


def _is_kept(run: PrefixRun) -> bool:
    """Return whether the blocks of a run are here, held or idle."""
    return run.holders > 0 or run.rank is not None


def _covers(private: list[tuple[int, int]], place: int) -> bool:
    return any(start <= place < end for start, end in private)
