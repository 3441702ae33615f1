"""Prefix sharing by block hash (vLLM): every full block is kept on its own, found by what it names.

Two blocks of the same content are both kept, and the older is found: a server that hashes blocks as
they fill does not compare them. Every block is on its own: a prefix may go while its continuation
stays, which then cannot be reached until the prefix has been computed again. Blocks that no key
names, of a prompt's end or of an answer, are found by their own request after a preemption, and
stay until they are evicted.

Blocks of one sequence that one key names are a *run*: they are found, held and evicted together as
long as nothing parts them.
"""

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from operator import attrgetter

from policies.prefix.eviction_rank import EvictionRank
from policies.sequence import Sequence


@dataclass(slots=True, eq=False)
class _Run:
    """Blocks at successive places of a block table."""

    key: int
    start: int
    end: int
    blocks: list[int]
    """Numbers of the blocks from the first on, as far as a table needed them."""
    born: int
    holders: int = 1
    uses: int = 1
    rank: tuple[float, int] = (0.0, 0)
    """Place in the order of eviction."""
    ticket: int = 0
    """Number of its entry in the heap of idle runs; 0 while a sequence holds the run."""
    tail: "_Run | None" = None
    """What was cut off last."""

    @property
    def size(self) -> int:
        """The number of blocks."""
        return self.end - self.start


class BlockRuns:
    """Maps keys to runs of blocks, and knows which runs are idle."""

    def __init__(self, eviction: str, block_tokens: int) -> None:
        self.idle_blocks = 0
        self.held_blocks = 0
        self._block_tokens = block_tokens
        self._rank = EvictionRank(eviction)
        self._runs: dict[int, list[_Run]] = {}  # by key, in the order of places
        self._held: dict[Sequence, list[_Run]] = {}
        """Runs by holder, in the order of places; what was cut off since is behind ``tail``."""
        self._idle: list[tuple[tuple[float, int], int, int, _Run]] = []
        """Heap of (rank, -start, ticket, run), with stale entries."""
        self._tickets = 0

    def find(self, seq: Sequence, limit: int) -> tuple[int, int]:
        """Return (blocks found, idle ones among them) of the first ``limit`` blocks."""
        found = idle = 0
        for run, end in self._match(seq, limit):
            if run.ticket:
                idle += end - found
            found = end
        return found, idle

    def hold(self, seq: Sequence, limit: int) -> None:
        """Hold what ``find`` finds."""
        held = self._held[seq] = []
        for run, end in self._match(seq, limit):
            if end < run.end:
                self._cut(run, end)
            held.append(run)
            if run.ticket:
                run.ticket = 0
                self.idle_blocks -= run.size
                self.held_blocks += run.size
            run.holders += 1
            run.uses += 1
        seq.keyed_blocks = held[-1].end if held else 0

    def held(self, seq: Sequence) -> int:
        """Return how many leading blocks ``share`` would share."""
        return seq.keyed_blocks

    def share(self, seq: Sequence, child: Sequence) -> None:
        """Let ``child`` hold what ``seq`` holds through the index."""
        held = self._held[child] = self._parts(seq)
        for run in held:
            run.holders += 1
            run.uses += 1
        child.keyed_blocks = seq.keyed_blocks

    def insert(self, seq: Sequence, blocks: int) -> None:
        """Note that the first ``blocks`` of the sequence's table are filled, now or before."""
        keys, size = seq.block_keys, seq.key_blocks
        named = self._named_blocks(seq)
        place = seq.keyed_blocks
        while place < blocks:
            if place < named:
                unit = place // size
                end = min((unit + 1) * size, named, blocks)
                self._keep(seq, keys[unit], place, end)
            else:
                end = blocks
                self._keep(seq, seq.own_key, place, end)
            place = seq.keyed_blocks = end

    def release(self, seq: Sequence) -> tuple[int, list[int]]:
        """Let go, the tail first, so that prefixes outlive their continuations."""
        for run in self.runs(seq):
            run.holders -= 1
            if not run.holders:
                self._offer(run, self._rank.of(run.uses, run.born))
                self.idle_blocks += run.size
                self.held_blocks -= run.size
        self._held.pop(seq, None)
        held, numbers = seq.keyed_blocks, seq.blocks[seq.keyed_blocks :]
        seq.keyed_blocks = 0
        return held, numbers

    def evict(self, blocks: int) -> list[int]:
        """Forget so many idle blocks; return the numbers of the blocks that have one."""
        numbers: list[int] = []
        left = blocks
        while left:
            _, _, ticket, run = self._idle[0]
            if run.ticket != ticket:
                heappop(self._idle)
                continue
            taken = min(left, run.size)
            run.end -= taken
            left -= taken
            kept = run.end - run.start
            numbers += reversed(run.blocks[kept:])
            del run.blocks[kept:]
            if not kept:
                heappop(self._idle)
                self._forget(run)
        self.idle_blocks -= blocks
        return numbers

    def runs(self, seq: Sequence) -> Iterator[_Run]:
        """Yield the runs that the sequence holds, the last first."""
        return reversed(self._parts(seq))

    def number(self, seq: Sequence, take: Callable[[int], list[int]]) -> None:
        """Lengthen the block table by what the sequence holds; ``take`` gives new numbers."""
        for run in self._parts(seq):
            if len(seq.blocks) < run.end:
                run.blocks += take(run.size - len(run.blocks))
                seq.blocks += run.blocks[len(seq.blocks) - run.start :]

    def _named_blocks(self, seq: Sequence) -> int:
        """Return how many leading blocks of a sequence have keys that others may have too."""
        tokens = seq.prompt_tokens + (seq.max_tokens if seq.names_answer else 0)
        return min(len(seq.block_keys) * seq.key_blocks, tokens // self._block_tokens)

    def _match(self, seq: Sequence, limit: int) -> Iterator[tuple[_Run, int]]:
        """Yield the runs with the first ``limit`` blocks of a sequence, and where each is left."""
        keys, size = seq.block_keys, seq.key_blocks
        named = self._named_blocks(seq)
        place = 0
        while place < limit:
            is_named = place < named
            run = self._at(keys[place // size] if is_named else seq.own_key, place)
            if run is None:
                return
            place = min(run.end, named if is_named else limit, limit)
            yield run, place

    def _at(self, key: int, place: int) -> _Run | None:
        """Return the run of a key with the block of ``place``; of several, the oldest."""
        for run in self._runs.get(key, ()):
            if run.start <= place < run.end:
                return run
        return None

    def _parts(self, seq: Sequence) -> list[_Run]:
        """Return the runs that a sequence holds, with what was cut off them since."""
        held = self._held.get(seq, [])
        parts: list[_Run] = []
        for number, first in enumerate(held, 1):
            end = held[number].start if number < len(held) else seq.keyed_blocks
            run: _Run | None = first
            while run is not None and run.start < end:
                parts.append(run)
                run = run.tail
        return parts

    def _keep(self, seq: Sequence, key: int, start: int, end: int) -> None:
        """Keep blocks of a sequence under a key, after the others that it holds."""
        held = self._held.setdefault(seq, [])
        runs = self._runs.setdefault(key, [])
        numbers = seq.blocks[start:end]
        self.held_blocks += end - start
        if any(run.start < end and start < run.end for run in runs):
            self._keep_again(runs, held, _Run(key, start, end, numbers, 0))
            return
        last = held[-1] if held else None
        if last is not None and last.end == start and _may_grow(last, runs):
            last.end = end
            last.blocks += numbers
            last.tail = None  # it was evicted
            return
        self._add(runs, held, _Run(key, start, end, numbers, self._rank.tick()))

    def _keep_again(self, runs: list[_Run], held: list[_Run], fresh: _Run) -> None:
        """Keep blocks of which some are there already: from now on each of them is a run."""
        start, end = fresh.start, fresh.end
        for run in [run for run in runs if run.start < end and start < run.end]:
            for place in range(run.end - 1, run.start, -1):
                self._cut(run, place)
        for place in range(start, end):
            number = fresh.blocks[place - start : place - start + 1]
            self._add(runs, held, _Run(fresh.key, place, place + 1, number, self._rank.tick()))

    def _add(self, runs: list[_Run], held: list[_Run], run: _Run) -> None:
        insort(runs, run, key=attrgetter("start"))
        held.append(run)

    def _cut(self, run: _Run, place: int) -> None:
        """Cut the blocks from ``place`` on off a run; its holders hold both parts."""
        numbers = run.blocks[place - run.start :]
        del run.blocks[place - run.start :]
        rest = _Run(run.key, place, run.end, numbers, run.born, run.holders, run.uses)
        rest.tail = run.tail
        run.end = place
        run.tail = rest
        insort(self._runs[run.key], rest, key=attrgetter("start"))
        if run.ticket:
            self._offer(rest, run.rank)

    def _offer(self, run: _Run, rank: tuple[float, int]) -> None:
        """Let a run without holders be evicted; of parts of one run, the last goes first."""
        run.rank = rank
        self._tickets = run.ticket = self._tickets + 1
        heappush(self._idle, (rank, -run.start, run.ticket, run))

    def _forget(self, run: _Run) -> None:
        run.ticket = 0
        runs = self._runs[run.key]
        runs.remove(run)
        if not runs:
            del self._runs[run.key]


def _may_grow(run: _Run, runs: list[_Run]) -> bool:
    """Return whether a run is the last of a key, has one holder, and no copies beside it."""
    if run.holders > 1 or not runs or runs[-1] is not run:
        return False
    return len(runs) == 1 or runs[-2].end <= run.start
