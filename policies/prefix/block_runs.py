"""Prefix sharing by block hash (vLLM): every full block is kept on its own, found by what it names.

Two blocks of the same content are both kept, and the older is found: a server that hashes blocks as
they fill does not compare them. Every block is on its own: a prefix may go while its continuation
stays, which then cannot be reached until the prefix has been computed again. Blocks that no key
names, of a prompt's end or of an answer, are found by their own request after a preemption, and
stay until they are evicted.

Successive blocks that one sequence filled are a *run*: they are found, held and evicted together
as long as nothing parts them. A run is cut where a prompt was found to part from it, and blocks
with copies are runs of one block. So a prompt that comes to a run comes to its first block, and
only the key of that block needs to be known. Where blocks are not evicted in the order of their
last use, a run ends with its key.
"""

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from operator import attrgetter

from servetwin.policies.prefix.eviction import EvictionRank
from servetwin.policies.prefix.prefix_run import HeldRun, parting
from servetwin.policies.sequence import Keys, Sequence


@dataclass(slots=True, eq=False)
class BlockRun(HeldRun):
    """Successive blocks that one sequence filled.

    ``key`` is that of the first block. Blocks that belong to one request have one key, and no
    ``keys``.
    """

    key: int = 0
    rank: tuple[float, int] = (0.0, 0)
    """Place in the order of eviction."""
    ticket: int = 0
    """Number of its entry in the heap of idle runs; 0 while a sequence holds the run."""
    tail: "BlockRun | None" = None
    """What was cut off last."""

    def key_at(self, place: int) -> int:
        """Return the key of one of the blocks."""
        return self.keys[place // self.key_blocks] if self.keys else self.key

    def reach(self, keys: Keys, end: int) -> int:
        """Return the place, at most ``end``, up to which a prompt shares the blocks.

        It shares the first one. As keys are chained, it parts from them once.
        """
        own, size = self.keys, self.key_blocks
        last = (end - 1) // size
        if own is keys or own[last] == keys[last]:
            return end
        return parting(own, keys, self.start // size, last) * size


class BlockRuns:
    """Maps keys to runs of blocks, and knows which runs are idle."""

    def __init__(self, eviction: str, block_tokens: int) -> None:
        self.idle_blocks = 0
        self.held_blocks = 0
        self._block_tokens = block_tokens
        self._rank = EvictionRank(eviction)
        # Whether blocks of several keys are one run: released together, they go together.
        self._spans_keys = eviction == "lru"
        # Runs by the key of their first block, in the order of places; the oldest copy first.
        self._runs: dict[int, list[BlockRun]] = {}
        self._first_keys = self._runs.keys()
        # Runs by holder, in the order of places; what was cut off since is behind ``tail``.
        self._held: dict[Sequence, list[BlockRun]] = {}
        # Heap of (rank, -start, ticket, run), with stale entries.
        self._idle: list[tuple[tuple[float, int], int, int, BlockRun]] = []
        self._tickets = 0
        # The sequence and the most blocks for which ``_path`` is known.
        self._matched: tuple[Sequence, int] | None = None
        self._path: list[tuple[BlockRun, int]] = []

    def find(self, seq: Sequence, limit: int) -> tuple[int, int]:
        """Return (blocks found, idle ones among them) of the first ``limit`` blocks."""
        place = idle = 0
        for run, end in self._match(seq, limit):
            if run.ticket:
                idle += end - place
            place = end
        return place, idle

    def hold(self, seq: Sequence, limit: int) -> None:
        """Hold what ``find`` finds."""
        held = self._held[seq] = []
        path = self._match(seq, limit)
        self._matched = None
        for run, end in path:
            if end < run.end:
                self._cut(run, end)
            held.append(run)
            if run.ticket:
                run.ticket = 0
                self.idle_blocks -= run.size
                self.held_blocks += run.size
            run.holders += 1
            run.uses += 1
        seq.held.keyed_blocks = held[-1].end if held else 0

    def share(self, seq: Sequence, child: Sequence) -> None:
        """Let ``child`` hold what ``seq`` holds through the index."""
        held = self._held[child] = self._parts(seq)
        for run in held:
            run.holders += 1
            run.uses += 1
        child.held.keyed_blocks = seq.held.keyed_blocks

    def insert(self, seq: Sequence, blocks: int) -> None:
        """Note that the first ``blocks`` of the sequence's table are filled, now or before."""
        self._matched = None
        named = self._named_blocks(seq)
        place = seq.held.keyed_blocks
        self.held_blocks += blocks - place
        while place < blocks:
            end = named if place < named < blocks else blocks
            if place < named and not self._spans_keys:
                end = min(end, (place // seq.key_blocks + 1) * seq.key_blocks)
            copied = self._copied(seq, place, end, place < named)
            if copied:
                self._keep_beside(seq, place, end, copied)
            else:
                self._keep(seq, place, end, place < named)
            place = seq.held.keyed_blocks = end

    def release(self, seq: Sequence) -> tuple[int, list[int]]:
        """Let go, the tail first, so that prefixes outlive their continuations."""
        self._matched = None
        for run in self.runs(seq):
            run.holders -= 1
            if not run.holders:
                self._offer(run, self._rank.of(run.uses, run.born))
                self.idle_blocks += run.size
                self.held_blocks -= run.size
        self._held.pop(seq, None)
        held, numbers = seq.held.keyed_blocks, seq.blocks[seq.held.keyed_blocks :]
        seq.held.keyed_blocks = 0
        return held, numbers

    def evict(self, blocks: int) -> list[int]:
        """Forget so many idle blocks; return the numbers of the blocks that have one."""
        self._matched = None
        self.idle_blocks -= blocks
        numbers: list[int] = []
        while blocks:
            _, _, ticket, run = self._idle[0]
            if run.ticket == ticket:
                end = run.end - blocks
                if run.blocks:
                    rest = max(end - run.start, 0)
                    numbers += reversed(run.blocks[rest:])
                    del run.blocks[rest:]
                if end > run.start:
                    run.end = end
                    break
                blocks = run.start - end
                self._forget(run)
            heappop(self._idle)
        return numbers

    def runs(self, seq: Sequence) -> Iterator[BlockRun]:
        """Yield the runs that the sequence holds, the last first."""
        return reversed(self._parts(seq))

    def _named_blocks(self, seq: Sequence) -> int:
        """Return how many leading blocks of a sequence have keys that others may have too."""
        tokens = seq.prompt_tokens + (seq.max_tokens if seq.names_answer else 0)
        named, full = len(seq.block_keys) * seq.key_blocks, tokens // self._block_tokens
        return named if named < full else full

    def _match(self, seq: Sequence, limit: int) -> list[tuple[BlockRun, int]]:
        """Return the runs with the first ``limit`` blocks of a sequence, and where each is left.

        Admission asks several times in a row: the answer holds until a run changes.
        """
        if self._matched is not None and self._matched[0] is seq and self._matched[1] == limit:
            return self._path
        self._matched = seq, limit
        path = self._path = []
        keys, size = seq.block_keys, seq.key_blocks
        named = self._named_blocks(seq)
        place = 0
        while place < limit:
            is_named = place < named
            run = self._at(keys[place // size] if is_named else seq.own_key, place)
            if run is None:
                break
            place = min(run.end, limit)
            if is_named:
                place = run.reach(keys, min(place, named))
            path.append((run, place))
        return path

    def _at(self, key: int, place: int) -> BlockRun | None:
        """Return the run of a key with the block of ``place``; of several, the oldest."""
        for run in self._runs.get(key, ()):
            if run.start <= place < run.end:
                return run
        return None

    def _parts(self, seq: Sequence) -> list[BlockRun]:
        """Return the runs that a sequence holds, with what was cut off them since."""
        held = self._held.get(seq, [])
        parts: list[BlockRun] = []
        for number, first in enumerate(held, 1):
            end = held[number].start if number < len(held) else seq.held.keyed_blocks
            run: BlockRun | None = first
            while run is not None and run.start < end:
                parts.append(run)
                run = run.tail
        return parts

    def _copied(self, seq: Sequence, start: int, end: int, is_named: bool) -> list[BlockRun]:
        """Return the runs with blocks of the same names as those of a sequence, by place."""
        if not is_named:
            return [r for r in self._runs.get(seq.own_key, ()) if start <= r.start < end]
        first, size = start // seq.key_blocks, seq.key_blocks
        keys = seq.block_keys[first : (end - 1) // size + 1]
        if self._first_keys.isdisjoint(keys):
            return []
        return [r for key in keys for r in self._runs.get(key, ()) if start <= r.start < end]

    def _keep(self, seq: Sequence, start: int, end: int, is_named: bool) -> None:
        """Keep blocks of a sequence that have no copies, after the others that it holds."""
        keys = seq.block_keys if is_named else ()
        key = keys[start // seq.key_blocks] if is_named else seq.own_key
        numbers = seq.blocks[start:end]
        held = self._held.get(seq)
        last = held[-1] if held else None
        if last is not None and last.end == start and self._may_grow(last, key, is_named):
            last.end = end
            last.blocks += numbers
            last.keys = keys
            last.tail = None  # no sequence holds it
            return
        born = self._rank.tick()
        self._add(seq, BlockRun(keys, seq.key_blocks, start, end, born, numbers, key=key))

    def _may_grow(self, run: BlockRun, key: int, is_named: bool) -> bool:
        """Return whether blocks may follow in a run: it has one holder, and no copies."""
        if run.holders > 1 or (run.key != key and not (self._spans_keys and run.keys and is_named)):
            return False
        runs = self._runs[run.key]
        return runs[-1] is run and (runs[0] is run or runs[-2].end <= run.start)

    def _keep_beside(self, seq: Sequence, start: int, end: int, copied: list[BlockRun]) -> None:
        """Keep blocks of which some are there already: from now on each of them is a run."""
        place, is_named = start, bool(copied[0].keys)
        for run in copied:
            stop = end
            if self._spans_keys:
                stop = min(run.end, end)
                if place < run.start:
                    self._keep(seq, place, run.start, is_named)
                    place = run.start
            for cut in range(min(run.end - 1, stop), run.start, -1):
                self._cut(run, cut)
            while place < stop:
                self._keep_block(seq, place, is_named)
                place += 1
        if place < end:
            self._keep(seq, place, end, is_named)

    def _keep_block(self, seq: Sequence, place: int, is_named: bool) -> None:
        keys, size = (seq.block_keys if is_named else ()), seq.key_blocks
        key = keys[place // size] if is_named else seq.own_key
        numbers = seq.blocks[place : place + 1]
        born = self._rank.tick()
        self._add(seq, BlockRun(keys, size, place, place + 1, born, numbers, key=key))

    def _add(self, seq: Sequence, run: BlockRun) -> None:
        """Let a sequence hold a new run after its others."""
        self._list(run)
        self._held.setdefault(seq, []).append(run)

    def _list(self, run: BlockRun) -> None:
        """Let a run be found."""
        runs = self._runs.get(run.key)
        if runs is None:
            self._runs[run.key] = [run]
        else:
            insort(runs, run, key=attrgetter("start"))

    def _cut(self, run: BlockRun, place: int) -> None:
        """Cut the blocks from ``place`` on off a run; its holders hold both parts."""
        numbers = run.blocks[place - run.start :]
        del run.blocks[place - run.start :]
        key, size = run.key_at(place), run.key_blocks
        rest = BlockRun(
            run.keys, size, place, run.end, run.born, numbers, run.holders, run.uses, key
        )
        rest.tail = run.tail
        run.end = place
        run.tail = rest
        self._list(rest)
        if run.ticket:
            self._offer(rest, run.rank)

    def _offer(self, run: BlockRun, rank: tuple[float, int]) -> None:
        """Let a run without holders be evicted; of parts of one run, the last goes first."""
        run.rank = rank
        self._tickets = run.ticket = self._tickets + 1
        heappush(self._idle, (rank, -run.start, run.ticket, run))

    def _forget(self, run: BlockRun) -> None:
        run.ticket = 0
        runs = self._runs[run.key]
        runs.remove(run)
        if not runs:
            del self._runs[run.key]
