"""Prefix sharing by radix tree (SGLang, 2024): one node per run of blocks used together.

Only leaves are evicted, from their end: a continuation is worthless without its prefix.

A sequence that finds its next run in the tree although it computed it itself (two equal prompts in
the same steps) keeps its own copy private, and shares nothing beyond it.
"""

from heapq import heappop

from servetwin.policies.prefix.prefix_run import PrefixRun
from servetwin.policies.prefix.run_index import RunIndex
from servetwin.policies.sequence import Sequence

Cause = int | PrefixRun
"""A key with which a run begins, or a run that loses blocks."""


class PrefixWatch:
    """Knows which of the watched prompts may have another match than before."""

    def __init__(self) -> None:
        self._watching: dict[Cause, set[Sequence]] = {}
        self._causes: dict[Sequence, list[Cause]] = {}
        self._changed: set[Sequence] = set()

    def begin(self, seq: Sequence, causes: list[Cause]) -> None:
        """Watch a prompt that was just matched."""
        self._causes[seq] = causes
        for cause in causes:
            self._watching.setdefault(cause, set()).add(seq)

    def end(self, seq: Sequence) -> None:
        """Stop watching a prompt."""
        self._changed.discard(seq)
        for cause in self._causes.pop(seq):
            watching = self._watching.get(cause)
            if watching is not None:
                watching.discard(seq)
                if not watching:
                    del self._watching[cause]

    def happened(self, cause: Cause) -> None:
        """Note that a run began with a key, or lost blocks."""
        watching = self._watching.pop(cause, None)
        if watching is not None:
            self._changed |= watching

    def take_changed(self) -> list[Sequence]:
        """Return the prompts to match again, and stop watching them."""
        changed = list(self._changed)
        for seq in changed:
            self.end(seq)
        return changed


class PrefixTree(RunIndex):
    """Shares the leading runs of prompts, and forgets leaves."""

    def __init__(self, eviction: str) -> None:
        super().__init__(eviction)
        self._watch: PrefixWatch | None = None

    def watch(self) -> PrefixWatch:
        """Return what knows from now on of all that may change a match."""
        self._watch = self._watch or PrefixWatch()
        return self._watch

    def match(self, seq: Sequence, limit: int) -> tuple[int, list[Cause]]:
        """Return how many blocks ``find`` finds, and what may change that."""
        path, end = self._match(seq, limit)
        causes: list[Cause] = [path[-1]] if path else []
        if end < min(limit, len(seq.block_keys) * seq.key_blocks):
            causes.append(seq.block_keys[end // seq.key_blocks])
        return end, causes

    def held(self, seq: Sequence) -> int:
        """Return how many leading blocks ``share`` would share."""
        return seq.keyed_blocks

    def share(self, seq: Sequence, child: Sequence) -> None:
        """Let ``child`` hold what ``seq`` holds through the tree."""
        for run in self.runs(seq):
            self._hold(run)
        child.prefix = seq.prefix
        child.keyed_blocks = seq.keyed_blocks

    def insert(self, seq: Sequence, blocks: int) -> None:
        """Share the blocks from the last shared one up to ``blocks``."""
        named = min(len(seq.block_keys) * seq.key_blocks, blocks)
        if seq.keyed_blocks < named:
            self._share(seq, named)
        if named <= seq.keyed_blocks < blocks:
            self._keep_unnamed(seq, blocks)

    def release(self, seq: Sequence) -> tuple[int, list[int]]:
        """Let go, the tail first, so that prefixes outlive their continuations."""
        held = seq.keyed_blocks
        run = seq.prefix
        while run is not None and run.parent is not None:
            if self._let_go(run, 1) and not run.children:
                self._offer(run)
            run = run.parent
        seq.prefix = None
        seq.keyed_blocks = 0
        return held, seq.blocks[held:]

    def evict(self, blocks: int) -> list[int]:
        """Forget so many idle blocks, leaves from their ends; return the numbers that they have."""
        numbers: list[int] = []
        left = blocks
        self._matched = None
        while left:
            rank, run = self._idle[0]
            if run.rank != rank or run.children:
                heappop(self._idle)
                continue
            if self._watch is not None:
                self._watch.happened(run)
            rest = run.end - run.start - left
            if rest <= 0:
                left, rest = -rest, 0
                heappop(self._idle)
                self._remove(run)
            else:
                left = 0
            run.end = run.start + rest
            if run.blocks:
                numbers += reversed(run.blocks[rest:])
                del run.blocks[rest:]
        self.idle_blocks -= blocks
        return numbers

    def _share(self, seq: Sequence, end: int) -> None:
        """Blocks up to ``end`` that keys name: lengthen the sequence's own leaf, or begin one."""
        start, size, keys = seq.keyed_blocks, seq.key_blocks, seq.block_keys
        tip = seq.prefix or self._root(size)
        key = keys[start // size]
        if key in tip.children:
            return  # another sequence computed the same: these blocks stay private
        if self._watch is not None:
            self._watch.happened(key)
        if tip.holders == 1 and not tip.children:
            tip.keys = keys
            self._lengthen(tip, seq, end)
        else:
            run = tip.children[key] = PrefixRun(keys, size, start, end, tip, self._rank.tick())
            self._adopt(run, seq)
        seq.keyed_blocks = end

    def _remove(self, run: PrefixRun) -> None:
        run.rank = None
        self._idle_runs -= 1
        parent = run.parent
        if parent is None or not run.keys:
            return
        del parent.children[run.first_key]
        if parent.rank is not None and not parent.children:
            self._offer(parent)
