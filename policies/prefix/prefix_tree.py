"""Prefix sharing by radix tree (SGLang, 2024): one node per run of blocks used together.

Only leaves are evicted, from their end: a continuation is worthless without its prefix. What a
lookup or a release costs depends on the nodes, not on the length of the prompt: blocks are counted,
and get numbers when a table needs them.

A sequence that finds its next run in the tree although it computed it itself (two equal prompts in
the same steps) keeps its own copy private, and shares nothing beyond it.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from servetwin.policies.prefix.eviction import EvictionRank
from servetwin.policies.prefix.prefix_run import PrefixRun
from servetwin.policies.sequence import Sequence

# A key with which a run begins, or a run that loses blocks.
Cause = int | PrefixRun


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


_IDLE_HEAP_SLACK = 64


class PrefixTree:
    """Shares the leading runs of prompts, and forgets leaves."""

    def __init__(self, eviction: str) -> None:
        self.idle_blocks = 0
        self.held_blocks = 0
        self._rank = EvictionRank(eviction)
        self._roots: dict[int, PrefixRun] = {}  # by blocks per key
        # The last run that a sequence holds; its other ones are above it.
        self._tips: dict[Sequence, PrefixRun] = {}
        self._idle: list[tuple[tuple[float, int], PrefixRun]] = []  # heap, stale entries included
        self._idle_runs = 0
        # The sequence and the most blocks for which ``_path`` is known.
        self._matched: tuple[Sequence, int] | None = None
        self._path: tuple[list[PrefixRun], int] = ([], 0)
        self._watch: PrefixWatch | None = None

    def find(self, seq: Sequence, limit: int) -> tuple[int, int]:
        """Return (blocks found, idle ones among them) of the prompt's first ``limit`` blocks."""
        path, end = self._match(seq, limit)
        idle = 0
        for run in path:
            if run.rank is not None:
                idle += min(run.end, end) - run.start
        return end, idle

    def hold(self, seq: Sequence, limit: int) -> None:
        """Hold what ``find`` finds."""
        path, end = self._match(seq, limit)
        if path and path[-1].end > end:
            path = [*path[:-1], self._split(path[-1], end)]
        for run in path:
            self._hold(run)
        if path:
            self._tips[seq] = path[-1]
        seq.held.keyed_blocks = end

    def runs(self, seq: Sequence) -> Iterator[PrefixRun]:
        """Yield the runs that the sequence holds, the last first."""
        run = self._tips.get(seq)
        while run is not None and run.parent is not None:
            yield run
            run = run.parent

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

    def share(self, seq: Sequence, child: Sequence) -> None:
        """Let ``child`` hold what ``seq`` holds through the tree."""
        for run in self.runs(seq):
            self._hold(run)
        if seq in self._tips:
            self._tips[child] = self._tips[seq]
        child.held.keyed_blocks = seq.held.keyed_blocks

    def insert(self, seq: Sequence, blocks: int) -> None:
        """Share the blocks from the last shared one up to ``blocks``."""
        named = min(len(seq.block_keys) * seq.key_blocks, blocks)
        if seq.held.keyed_blocks < named:
            self._share(seq, named)
        if named <= seq.held.keyed_blocks < blocks:
            self._keep_unnamed(seq, blocks)

    def release(self, seq: Sequence) -> tuple[int, list[int]]:
        """Let go, the tail first, so that prefixes outlive their continuations."""
        held = seq.held.keyed_blocks
        for run in self.runs(seq):
            if self._let_go(run) and not run.children:
                self._offer(run)
        self._tips.pop(seq, None)
        seq.held.keyed_blocks = 0
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
        start, size, keys = seq.held.keyed_blocks, seq.key_blocks, seq.block_keys
        tip = self._tips.get(seq) or self._root(size)
        key = keys[start // size]
        if key in tip.children:
            return  # another sequence computed the same: these blocks stay private
        if self._watch is not None:
            self._watch.happened(key)
        if tip.holders == 1 and not tip.children:
            tip.keys = keys
            self._lengthen(tip, seq, end)
        else:
            run = tip.children[key] = PrefixRun(keys, size, start, end, self._rank.tick())
            self._adopt(run, tip, seq)
        seq.held.keyed_blocks = end

    def _remove(self, run: PrefixRun) -> None:
        run.rank = None
        self._idle_runs -= 1
        parent = run.parent
        if parent is None or not run.keys:
            return
        del parent.children[run.first_key]
        if parent.rank is not None and not parent.children:
            self._offer(parent)

    def _root(self, key_blocks: int) -> PrefixRun:
        root = self._roots.get(key_blocks)
        if root is None:
            root = self._roots[key_blocks] = PrefixRun((), key_blocks, 0, 0, 0, holders=0)
        return root

    def _match(self, seq: Sequence, limit: int) -> tuple[list[PrefixRun], int]:
        """Return the runs with the prompt's first blocks, and how many blocks they share with it.

        Admission asks several times in a row: the answer holds until the tree changes.
        """
        if self._matched is not None and self._matched[0] is seq and self._matched[1] == limit:
            return self._path
        self._matched = seq, limit
        keys, size = seq.block_keys, seq.key_blocks
        limit = min(limit, len(keys) * size)
        path: list[PrefixRun] = []
        end = 0
        run = self._root(size)
        while end == run.end and end < limit:
            child = run.children.get(keys[end // size])
            if child is None:
                break
            run = child
            end = min(run.reach(keys), limit)
            path.append(run)
        self._path = path, end
        return self._path

    def _hold(self, run: PrefixRun) -> None:
        if run.rank is not None:
            size = run.end - run.start
            run.rank = None
            self._idle_runs -= 1
            self.idle_blocks -= size
            self.held_blocks += size
        run.holders += 1
        run.uses += 1

    def _let_go(self, run: PrefixRun) -> bool:
        """Take a holder from a run; return whether it is idle now."""
        run.holders -= 1
        if run.holders:
            return False
        size = run.end - run.start
        run.rank = self._rank.of(run.uses, run.born)
        self.idle_blocks += size
        self.held_blocks -= size
        self._idle_runs += 1
        return True

    def _split(self, run: PrefixRun, place: int) -> PrefixRun:
        """Cut a run in two at ``place``; the head is new, the tail stays what it was."""
        self._matched = None
        parent, size = run.parent, run.key_blocks
        assert parent is not None
        cut = place - run.start
        head = PrefixRun(run.keys, size, run.start, place, run.born, run.blocks[:cut])
        head.parent, head.rank = parent, run.rank
        head.holders, head.uses = run.holders, run.uses
        self._idle_runs += run.rank is not None
        parent.children[run.first_key] = head
        del run.blocks[:cut]
        run.start, run.parent = place, head
        head.children[run.first_key] = run
        return head

    def _lengthen(self, run: PrefixRun, seq: Sequence, end: int) -> None:
        """Let a run that ``seq`` alone holds go on to ``end``."""
        self._matched = None
        run.blocks += seq.blocks[run.end : end]
        self.held_blocks += end - run.end
        run.end = end

    def _adopt(self, run: PrefixRun, parent: PrefixRun, seq: Sequence) -> None:
        """Let ``seq`` be the first holder of a run that it has just computed."""
        self._matched = None
        run.blocks = seq.blocks[run.start : run.end]
        run.parent = parent
        self.held_blocks += run.size
        self._tips[seq] = run

    def _keep_unnamed(self, seq: Sequence, end: int) -> None:
        """Keep blocks that no key names: they cannot be found, but stay until evicted."""
        tip = self._tips.get(seq) or self._root(seq.key_blocks)
        if tip.parent is not None and not tip.keys and tip.holders == 1:
            self._lengthen(tip, seq, end)
        else:
            born = self._rank.tick()
            self._adopt(PrefixRun((), 1, seq.held.keyed_blocks, end, born), tip, seq)
        seq.held.keyed_blocks = end

    def _offer(self, run: PrefixRun) -> None:
        """Let an idle run be evicted."""
        assert run.rank is not None
        heappush(self._idle, (run.rank, run))
        if len(self._idle) > 2 * self._idle_runs + _IDLE_HEAP_SLACK:
            self._idle = [(rank, idle) for rank, idle in self._idle if idle.rank == rank]
            heapify(self._idle)
