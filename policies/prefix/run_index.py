"""What the prefix indexes share: prompts as paths in a tree of runs of blocks.

A run of blocks that was always used as a whole is one node, split where prompts part. What a lookup
or a release costs depends on the nodes, not on the length of the prompt: blocks are counted, and
get numbers when a table needs them.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappush

from servetwin.policies.prefix.eviction import EVICTION_ORDERS
from servetwin.policies.prefix.prefix_run import PrefixRun
from servetwin.policies.sequence import Sequence


class EvictionRank:
    """Ranks idle blocks by an ``EvictionOrder``, and counts the moments."""

    def __init__(self, order: str) -> None:
        self._rank = EVICTION_ORDERS.build(order).rank
        self._now = 0

    def tick(self, moments: int = 1) -> int:
        """Return the next moment; so many pass."""
        first = self._now + 1
        self._now += moments
        return first

    def of(self, uses: int, born: int, moments: int = 1) -> tuple[float, int]:
        """Return the rank of what becomes idle now, while so many moments pass."""
        now = self.tick(moments)
        return self.at(uses, born, now)

    def at(self, uses: int, born: int, now: int) -> tuple[float, int]:
        """Return the rank of what became idle at a moment; the smallest is evicted first."""
        return self._rank(uses, born, now), now


_IDLE_HEAP_SLACK = 64


class RunIndex:
    """Maps prefixes to runs of blocks, and knows which runs are idle.

    ``seq.prefix`` is the last run that a sequence holds; its other ones are above it.
    """

    def __init__(self, eviction: str) -> None:
        self.idle_blocks = 0
        self.held_blocks = 0
        self._rank = EvictionRank(eviction)
        self._roots: dict[int, PrefixRun] = {}  # by blocks per key
        self._idle: list[tuple[tuple[float, int], PrefixRun]] = []  # heap, stale entries included
        self._idle_runs = 0
        self._matched: tuple[Sequence, int] | None = None
        """The sequence and the most blocks for which ``_path`` is known."""
        self._path: tuple[list[PrefixRun], int] = ([], 0)

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
        seq.prefix = path[-1] if path else None
        seq.keyed_blocks = end

    def runs(self, seq: Sequence) -> Iterator[PrefixRun]:
        """Yield the runs that the sequence holds, the last first."""
        return self._line(seq)

    def _line(self, seq: Sequence) -> Iterator[PrefixRun]:
        """Yield the last run that the sequence holds, and all above it."""
        run = seq.prefix
        while run is not None and run.parent is not None:
            yield run
            run = run.parent

    def number(self, seq: Sequence, take: Callable[[int], list[int]]) -> None:
        """Lengthen the block table by what the sequence holds; ``take`` gives new numbers."""
        for run in reversed(list(self.runs(seq))):
            if len(seq.blocks) < run.start:  # blocks of its own in between
                seq.blocks += take(run.start - len(seq.blocks))
            if len(seq.blocks) < run.end:
                if missing := run.size - len(run.blocks):
                    run.blocks += take(missing)
                seq.blocks += run.blocks[len(seq.blocks) - run.start :]

    def _root(self, key_blocks: int) -> PrefixRun:
        root = self._roots.get(key_blocks)
        if root is None:
            root = self._roots[key_blocks] = PrefixRun((), key_blocks, 0, 0, None, 0)
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
            if child is None or (child.rank is None and not child.holders):
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

    def _let_go(self, run: PrefixRun, moments: int) -> bool:
        """Take a holder from a run; return whether it is idle now, for so many moments of rank."""
        run.holders -= 1
        if run.holders:
            return False
        size = run.end - run.start
        run.rank = self._rank.of(run.uses, run.born, moments)
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
        head = PrefixRun(run.keys, size, run.start, place, parent, run.born, run.blocks[:cut])
        head.holders, head.uses, head.rank = run.holders, run.uses, run.rank
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

    def _adopt(self, run: PrefixRun, seq: Sequence) -> None:
        """Let ``seq`` be the first holder of a run that it has just computed."""
        self._matched = None
        run.blocks = seq.blocks[run.start : run.end]
        run.holders = run.uses = 1
        self.held_blocks += run.size
        seq.prefix = run

    def _keep_unnamed(self, seq: Sequence, end: int) -> None:
        """Keep blocks that no key names: they cannot be found, but stay until evicted."""
        tip = seq.prefix or self._root(seq.key_blocks)
        if tip.parent is not None and not tip.keys and tip.holders == 1:
            self._lengthen(tip, seq, end)
        else:
            born = self._rank.tick()
            self._adopt(PrefixRun((), 1, seq.keyed_blocks, end, tip, born), seq)
        seq.keyed_blocks = end

    def _offer(self, run: PrefixRun) -> None:
        """Let an idle run be evicted."""
        assert run.rank is not None
        heappush(self._idle, (run.rank, run))
        if len(self._idle) > 2 * self._idle_runs + _IDLE_HEAP_SLACK:
            self._idle = [(rank, idle) for rank, idle in self._idle if idle.rank == rank]
            heapify(self._idle)
