"""Prefix sharing by radix tree (SGLang, 2024): one node per run of blocks used together.

The prompts of all sequences form a tree; a run of blocks that was always shared as a whole is one
node, split where prompts part. A lookup, an insertion or a release costs a few nodes, however long
the prompt. Only leaves are evicted, from their end: a continuation is worthless without its prefix.

A sequence that finds its next run in the tree although it computed it itself (two equal prompts in
the same steps) keeps its own copy private, and shares nothing beyond it.
"""

from heapq import heapify, heappop, heappush

from policies.block_keys import Keys
from policies.prefix.eviction import EvictionRank
from policies.prefix.prefix_run import PrefixRun
from policies.sequence import Sequence

_IDLE_HEAP_SLACK = 64


class PrefixTree:
    """Maps prefixes to runs of blocks, and knows which runs are idle."""

    def __init__(self, eviction: str) -> None:
        self.idle_blocks = 0
        self.held_blocks = 0
        self._rank = EvictionRank(eviction)
        self._roots: dict[int, PrefixRun] = {}  # by blocks per key
        self._idle: list[tuple[tuple[float, int], PrefixRun]] = []  # heap, stale entries included
        self._idle_runs = 0

    def find(self, seq: Sequence, limit: int) -> tuple[int, int]:
        """Return (blocks found, idle ones among them) of the prompt's first ``limit`` blocks."""
        path, end = self._match(seq, limit)
        idle = sum(min(run.end, end) - run.start for run in path if run.rank is not None)
        return end, idle

    def hold(self, seq: Sequence, limit: int) -> list[int]:
        """Hold what ``find`` finds; return the blocks, in the order of positions."""
        path, end = self._match(seq, limit)
        if path and path[-1].end > end:
            path[-1] = self._split(path[-1], end)
        blocks: list[int] = []
        for run in path:
            self._hold(run)
            blocks += run.blocks
        seq.prefix = path[-1] if path else None
        seq.keyed_blocks = end
        return blocks

    def held(self, seq: Sequence) -> int:
        """Return how many leading blocks ``share`` would share."""
        return seq.keyed_blocks

    def share(self, seq: Sequence, child: Sequence) -> list[int]:
        """Let ``child`` hold what ``seq`` holds through the tree; return the blocks."""
        run = child.prefix = seq.prefix
        while run is not None and run.blocks:
            self._hold(run)
            run = run.parent
        child.keyed_blocks = seq.keyed_blocks
        return seq.blocks[: seq.keyed_blocks]

    def insert(self, seq: Sequence, blocks: int) -> None:
        """Share the table's blocks from the last shared one up to ``blocks``."""
        keys = seq.block_keys or ()
        named = min(len(keys) * seq.key_blocks, blocks)
        if seq.keyed_blocks < named:
            self._share(seq, keys, named)
        if named <= seq.keyed_blocks < blocks:
            self._keep(seq, blocks)

    def release(self, seq: Sequence) -> list[int]:
        """Let go, the tail first, so that prefixes outlive their continuations."""
        private = seq.blocks[seq.keyed_blocks :]
        run = seq.prefix
        while run is not None and run.blocks:
            run.holders -= 1
            if not run.holders:
                run.rank = self._rank.of(run.uses, run.born)
                self.idle_blocks += len(run.blocks)
                self.held_blocks -= len(run.blocks)
                self._idle_runs += 1
                if not run.children:
                    self._offer(run)
            run = run.parent
        seq.prefix = None
        seq.keyed_blocks = 0
        return private

    def evict(self, blocks: int) -> list[int]:
        """Forget so many idle blocks, leaves from their ends, and hand them out."""
        evicted: list[int] = []
        while len(evicted) < blocks:
            rank, run = self._idle[0]
            if run.rank != rank or run.children:
                heappop(self._idle)
                continue
            taken = run.blocks[-(blocks - len(evicted)) :]
            del run.blocks[-len(taken) :]
            evicted += reversed(taken)
            if not run.blocks:
                heappop(self._idle)
                self._remove(run)
        self.idle_blocks -= blocks
        return evicted

    def keyed(self, seq: Sequence) -> set[int]:
        """Return the blocks that the sequence holds through this index."""
        blocks: set[int] = set()
        run = seq.prefix
        while run is not None:
            blocks.update(run.blocks)
            run = run.parent
        return blocks

    def _root(self, key_blocks: int) -> PrefixRun:
        root = self._roots.get(key_blocks)
        if root is None:
            root = self._roots[key_blocks] = PrefixRun([], key_blocks, 0, [], None, 0)
        return root

    def _match(self, seq: Sequence, limit: int) -> tuple[list[PrefixRun], int]:
        """Runs with the prompt's first blocks, and how many blocks they share with it."""
        keys, size = seq.block_keys or (), seq.key_blocks
        limit = min(limit, len(keys) * size)
        path: list[PrefixRun] = []
        end = 0
        run: PrefixRun | None = self._root(size)
        while run is not None and end == run.end and end < limit:
            unit = end // size
            run = run.children.get(keys[unit])
            if run is not None:
                end = min((unit + _common(run.keys, keys, unit)) * size, run.end, limit)
                path.append(run)
        return path, end

    def _hold(self, run: PrefixRun) -> None:
        if run.rank is not None:
            run.rank = None
            self._idle_runs -= 1
            self.idle_blocks -= len(run.blocks)
            self.held_blocks += len(run.blocks)
        run.holders += 1
        run.uses += 1

    def _split(self, run: PrefixRun, place: int) -> PrefixRun:
        """Cut a run in two at ``place``; the head is new, the tail stays what it was."""
        size, parent = run.key_blocks, run.parent
        assert parent is not None
        first_unit = run.start // size
        cut = place - run.start
        keys = run.keys[: (place - 1) // size - first_unit + 1]
        head = PrefixRun(keys, size, run.start, run.blocks[:cut], parent, run.born)
        head.holders, head.uses, head.rank = run.holders, run.uses, run.rank
        self._idle_runs += run.rank is not None
        parent.children[keys[0]] = head
        run.keys = run.keys[place // size - first_unit :]
        del run.blocks[:cut]
        run.start, run.parent = place, head
        head.children[run.keys[0]] = run
        return head

    def _share(self, seq: Sequence, keys: Keys, end: int) -> None:
        """Blocks up to ``end`` that keys name: lengthen the sequence's own leaf, or begin one."""
        start, size = seq.keyed_blocks, seq.key_blocks
        tip = seq.prefix or self._root(size)
        units = list(keys[start // size : (end - 1) // size + 1])
        if units[0] in tip.children:
            return  # another sequence computed the same: these blocks stay private
        fresh = seq.blocks[start:end]
        if tip.holders == 1 and not tip.children:
            units_before = start // size - tip.start // size
            tip.keys = tip.keys[:units_before] + units
            self._lengthen(tip, fresh)
        else:
            run = PrefixRun(units, size, start, fresh, tip, self._rank.tick())
            tip.children[units[0]] = run
            self._adopt(seq, run)
        seq.keyed_blocks = end

    def _keep(self, seq: Sequence, end: int) -> None:
        """Keep blocks that no key names: they cannot be found, but stay until evicted."""
        tip, start = seq.prefix, seq.keyed_blocks
        fresh = seq.blocks[start:end]
        if tip is not None and not tip.keys:
            self._lengthen(tip, fresh)
        else:
            self._adopt(seq, PrefixRun([], 1, start, fresh, tip, self._rank.tick()))
        seq.keyed_blocks = end

    def _lengthen(self, run: PrefixRun, blocks: list[int]) -> None:
        run.blocks += blocks
        self.held_blocks += len(blocks)

    def _adopt(self, seq: Sequence, run: PrefixRun) -> None:
        run.holders = run.uses = 1
        self.held_blocks += len(run.blocks)
        seq.prefix = run

    def _remove(self, run: PrefixRun) -> None:
        run.rank = None
        self._idle_runs -= 1
        parent = run.parent
        if parent is None or not run.keys:
            return
        del parent.children[run.keys[0]]
        if parent.rank is not None and not parent.children:
            self._offer(parent)

    def _offer(self, run: PrefixRun) -> None:
        """An idle leaf may be evicted."""
        assert run.rank is not None
        heappush(self._idle, (run.rank, run))
        if len(self._idle) > 2 * self._idle_runs + _IDLE_HEAP_SLACK:
            self._idle = [(rank, idle) for rank, idle in self._idle if idle.rank == rank]
            heapify(self._idle)


def _common(run_keys: list[int], keys: Keys, first: int) -> int:
    """Leading units that a run has in common with ``keys`` from unit ``first`` on; at least 1."""
    count = min(len(run_keys), len(keys) - first)
    if run_keys[:count] == list(keys[first : first + count]):
        return count
    agree, differ = 1, count
    while differ - agree > 1:
        middle = (agree + differ) // 2
        if run_keys[agree:middle] == list(keys[first + agree : first + middle]):
            agree = middle
        else:
            differ = middle
    return agree
