"""Paged memory of layers that keep different positions: windows, chunks and states beside full.

Every group of layers has a block table of its own over one pool, as in vLLM's hybrid KV cache
manager (0.32: v1/core/kv_cache_coordinator.py). Blocks behind a window are given back as its
sequence goes on; a prefix is found as far as every group still has what the next position needs.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from operator import attrgetter

from servetwin.policies.config import PolicyConfig
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.policies.kv.block_pool import BlockPool
from servetwin.policies.kv.block_tables import NOWHERE, BlockTables
from servetwin.policies.kv.kv_groups import KVGroup, parse_groups
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.prefix.block_cache import BlockCache, block_names
from servetwin.policies.protocols import KVUsage
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr

# Blocks that a group takes for a new one of the sequence at most, where it is not one.
_GROWTH = {"fixed": 0, "state": 2}
_ADMISSION = attrgetter("admission_number")
# Schedulers that give a prompt its room by chunks where they are told to.
_CHUNKED = ("continuous", "chunked", "prefill-first")
_SHOWN = ("full", "window", "chunk", "kept")


@mypyc_attr(allow_interpreted_subclasses=True)
class GroupedKV(BlockPool):
    """A pool of blocks for the groups of ``config.kv_groups``, which may share prefixes.

    A step's rows have their blocks beside the window. What ``repeatable_steps`` promises leaves out
    the blocks that come free meanwhile.
    """

    def __init__(self, config: PolicyConfig) -> None:
        self._groups = parse_groups(config.kv_groups, config.block_tokens, config.prefix_cache)
        super().__init__(config)
        self.shares_prefixes = config.prefix_cache
        self.growing_groups = sum([_GROWTH.get(group.kind, 1) for group in self._groups])
        kinds = [group.kind for group in self._groups]
        self.gives_back = not {"window", "chunk", "state"}.isdisjoint(kinds)
        # The group whose table an executor sees; -1: all keep states alone.
        self._shown = next((place for place, kind in enumerate(kinds) if kind in _SHOWN), -1)
        by_chunk = config.prompt_blocks == "chunk" and config.batching in _CHUNKED
        chunked = config.admission != "full" and (config.batching == "unified" or by_chunk)
        self._knows_all = by_chunk or not (config.draft_rows and chunked)
        self._lag = int(config.decide_ahead)
        self._most_rows = config.token_budget * (1 + self._lag) if chunked else 1 << 62
        self._cache = BlockCache(len(self._groups))
        # The places of equal groups, full attention first.
        self._kinds: dict[KVGroup, list[int]] = {}
        by_kind = sorted(enumerate(self._groups), key=lambda item: item[1].kind != "full")
        for place, group in by_kind:
            self._kinds.setdefault(group, []).append(place)
        self._tables: dict[Sequence, BlockTables] = {}
        # Holders of a block beside the first.
        self._others: dict[int, int] = {}
        self._found: tuple[Sequence, int] | None = None

    def cached_prefix(self, seq: Sequence) -> int:
        """Return the leading tokens that every group has, in whole blocks."""
        return self._find(seq) * self.block_tokens if self.shares_prefixes else 0

    def reserve_part(self, seq: Sequence, tokens: int, fitting_tokens: int) -> bool:
        """Reserve as ``reserve`` does, but only with room for ``fitting_tokens`` positions."""
        hit = self._find(seq) if self.shares_prefixes else 0
        tables = self._prefix_tables(seq, hit)
        held = tables.held()
        available = self._available()
        is_empty = available == self.total_blocks
        available -= self._watermark_alone if is_empty else self._watermark
        available -= sum([block in self._cache.idle for block in held])
        rows = min(self._most_rows, fitting_tokens)
        fitting = tables.new_blocks_at_once(fitting_tokens, rows)
        if max(fitting, tables.new_blocks(tokens)) > available:
            return False
        for block in held:
            self._hold(block)
        self._begin(seq, tables, tokens)
        return True

    def extend(self, seq: Sequence, tokens: int) -> bool:
        """Give a sequence outside a lockstep group room for ``tokens`` positions, or False."""
        tables, computed = self._tables[seq], seq.base_computed_tokens
        if tokens > computed:  # else it has ended
            self._leave_behind(seq, tables, computed)
        if tables.new_blocks(tokens) > self._available():
            return False
        self._grant(seq, tables, tokens)
        return True

    def begin_step(self, seq: Sequence, computed: int) -> None:
        """Learn that the step under way computes the positions behind ``computed``, if any."""
        self._tables[seq].settled = computed

    def has_room(self, decodes: Lockstep, ends: list[tuple[Sequence, int]]) -> bool:
        """Return whether ``grow`` and ``extend`` to each end would all be granted."""
        needed = self._growth(decodes, 1) if decodes.size else 0
        needed += sum([self._tables[seq].new_blocks(end) for seq, end in ends])
        return needed <= self._available()

    def commit(self, seq: Sequence, tokens: int) -> None:
        """Let others find the full blocks among the first ``tokens`` positions."""
        self._name(seq, self._tables[seq], tokens)

    def grow(self, lockstep: Lockstep, steps: int = 1) -> bool:
        """Take room for ``steps`` more positions of every member; False, unchanged, without it."""
        needed = self._growth(lockstep, steps)
        if isinstance(lockstep, DraftedDecodes):
            return needed <= self._available() and self._grow_by_passes(lockstep, steps)
        if needed > self._available() and not self._has_room_in_turn(lockstep, steps):
            return False
        lockstep.granted_step += steps
        granted = lockstep.granted_step
        due: list[tuple[int, int, int, Sequence]] = []
        for order, seq in enumerate(lockstep):
            step = self._tables[seq].due - seq.base_computed_tokens + seq.joined_step
            if step <= granted:
                due.append((step, seq.admission_number, order, seq))
        heapify(due)  # they give blocks back step by step, in their order
        while due:
            step, admission, order, seq = heappop(due)
            offset = seq.base_computed_tokens - seq.joined_step
            self._advance(seq, self._tables[seq], offset + step)
            if (step := self._tables[seq].due - offset) <= granted:
                heappush(due, (step, admission, order, seq))
        return True

    def _grow_by_passes(self, decodes: DraftedDecodes, steps: int) -> bool:
        """Let decodes leave what is behind them and go on, pass by pass, in order of admission."""
        for _ in range(steps):
            blocks = decodes.new_blocks(1)
            decodes.granted_step += 1
            decodes.grant(blocks)
            for seq in sorted(decodes, key=_ADMISSION):
                tables, computed = self._tables[seq], decodes.before_pass(seq)
                if self._lag:
                    self._name(seq, tables, computed)
                if not self._lag or decodes.granted_step - 1 > seq.joined_step:
                    tables.settled = computed
                self._let_go(tables.leave_behind(tables.settled))
                self._grant(seq, tables, decodes.end_of_pass(seq))
                self._name(seq, tables, computed + 1)
        return True

    def fork(self, seq: Sequence, child: Sequence, tokens: int) -> bool:
        """Share the full blocks, and copy a partly filled last one, or what is kept in place."""
        size, computed = self.block_tokens, seq.computed_tokens
        own, tables = self._tables[seq], BlockTables(self._groups, self.block_tokens)
        self._leave_behind(seq, own, computed)
        for place, group in enumerate(self._groups):
            first = own.firsts[place]
            end = 0 if group.kind in ("kept", "fixed") else computed // size
            tables.begin(place, first, own.blocks[place][first:end])
        if tables.new_blocks(tokens) > self._available():
            return False
        for block in tables.held():
            self._others[block] = self._others.get(block, 0) + 1
        tables.keyed = child.held.keyed_blocks = min(own.keyed, computed // size)
        child.base_computed_tokens = computed
        self._begin(child, tables, tokens)
        return True

    def release(self, seq: Sequence) -> None:
        """Give back every block, the tail first; the sequence does not decode any more."""
        tables = self._tables.pop(seq, None)
        if tables is None:
            return
        self._found = None
        if not seq.held.on_host and self._knows_all:
            self._name(seq, tables, seq.base_computed_tokens)
        for place, blocks in enumerate(tables.blocks):
            end = tables.ends[place]
            self._returned += blocks[end:]  # were never granted
            self._let_go(blocks[tables.firsts[place] : end][::-1])
        seq.held.blocks = seq.held.keyed_blocks = 0
        seq.blocks, seq.states = [], []

    def table(self, seq: Sequence, tokens: int) -> list[int]:
        """Return the table of a group that has one, else as many places, all nowhere.

        The positions must have been granted by ``reserve`` or ``grow``, or be what
        ``repeatable_steps`` promised.
        """
        places = -(-tokens // self.block_tokens)
        if self._shown < 0:
            return [NOWHERE] * places
        group, blocks = self._groups[self._shown], seq.blocks
        missing = group.end(tokens, self.block_tokens) - len(blocks)
        if missing > 0:
            blocks += self._take(missing)
        return [NOWHERE] * places if group.kind == "kept" else blocks

    def forget_idle(self) -> None:
        """Forget every cached block that no sequence holds: one of them was never computed."""
        self._evict(len(self._cache.idle))

    def usage(self, seqs: Iterable[Sequence]) -> KVUsage:
        """Return where the memory is, given all sequences that hold any of it."""
        size = self.block_tokens
        filled: dict[int, int] = {}
        wasted = shared = 0
        for seq in seqs:
            tables, computed = self._tables[seq], seq.computed_tokens
            for place, group in enumerate(self._groups):
                end, tokens = tables.ends[place], computed
                if group.kind in ("state", "fixed"):
                    tokens = end * size
                else:
                    final = seq.final_kv_tokens
                    if group.kind == "kept":
                        final, tokens = min(final, group.tokens), min(tokens, group.tokens)
                    wasted += max(0, end * size - final)
                for number in range(tables.firsts[place], end):
                    block = tables.blocks[place][number]
                    if block >= 0:
                        held = min(max(0, tokens - number * size), size)
                        filled[block] = max(filled.get(block, 0), held)
        for block, tokens in filled.items():
            shared += tokens if block in self._others else 0
        cached = len(self._cache.idle) * size
        return KVUsage.of(
            self.capacity_tokens, len(filled) * size, sum(filled.values()), wasted,
            self._free * size, cached_tokens=cached, shared_tokens=shared,
        )  # fmt: skip

    def check(self, seqs: Iterable[Sequence]) -> None:
        """Assert the invariants of the pool against all sequences that hold blocks."""
        holders: dict[int, int] = {}
        for seq in seqs:
            for block in self._tables[seq].held():
                holders[block] = holders.get(block, 0) + 1
        others = {block: held - 1 for block, held in holders.items() if held > 1}
        assert others == self._others, "a block's holders are miscounted"
        assert holders.keys().isdisjoint(self._cache.idle), "a held block is idle"
        assert self._available() + len(holders) == self.total_blocks, "blocks leak"
        assert self._free >= 0, "more blocks are held than there are"

    def _need(self, seq: Sequence) -> str:
        positions = seq.final_kv_tokens
        tokens = self._blocks(positions) * self.block_tokens
        return f"{tokens} KV tokens for what it keeps of {positions} positions"

    def _blocks(self, positions: int) -> int:
        """Return the most blocks that a sequence of so many positions holds, alone."""
        rows, size = min(self._most_rows, positions), self.block_tokens
        return sum(
            [
                min(group.end(positions, size), group.most(positions, rows, size))
                + (group.kind == "state")  # at the end of a block, behind it, and before the chunk
                for group in self._groups
            ]
        )

    def _growth(self, lockstep: Lockstep, steps: int) -> int:
        """Return the most blocks that members need for ``steps`` positions beyond the granted."""
        return self.growing_groups * lockstep.new_blocks(steps) + self._spare(lockstep, steps)

    def _has_room_in_turn(self, lockstep: Lockstep, steps: int) -> bool:
        """Return whether each has room in its turn; what those after it leave comes too late."""
        needed = self._spare(lockstep, steps)
        for seq in sorted(lockstep, key=_ADMISSION):
            tables = self._tables[seq]
            granted = seq.base_computed_tokens - seq.joined_step + lockstep.granted_step
            self._leave_behind(seq, tables, granted)
            needed += tables.new_blocks(granted + steps)
            if needed > self._available():
                return False
        return True

    def _available(self) -> int:
        return self._free + len(self._cache.idle)

    def _find(self, seq: Sequence) -> int:
        """Return how many leading blocks every group has, as far as the next position needs them.

        The last token is always computed anew.
        """
        if self._found is not None and self._found[0] is seq:
            return self._found[1]
        size = self.block_tokens
        hit = seq.prompt_tokens + seq.base_generated_tokens - 1
        names = block_names(seq, 0, hit // size, size)
        before = -1
        while hit != before:
            before = hit
            for group, places in self._kinds.items():
                hit = self._reach(group, places, names, hit) * size
        self._found = seq, hit // size
        return hit // size

    def _reach(self, group: KVGroup, places: list[int], names: list[int], tokens: int) -> int:
        """Return the blocks, of at most ``tokens`` positions, that equal groups have."""
        size, has = self.block_tokens, self._cache.has
        end = tokens // size
        if group.kind in ("full", "chunk"):
            reach = group.first(tokens, size)
            while reach < end and has(places, names[reach]):
                reach += 1
            return reach
        needed = -(-(group.tokens - 1) // size) if group.kind == "window" else 1
        stop = end
        for place in range(end - 1, -1, -1):
            if not has(places, names[place]):
                stop = place
            elif stop - place >= needed:
                return stop
        return stop

    def _prefix_tables(self, seq: Sequence, hit: int) -> BlockTables:
        """Return tables of the cached blocks that the position after a hit needs."""
        tables, size = BlockTables(self._groups, self.block_tokens), self.block_tokens
        if hit:
            names = block_names(seq, 0, hit, size)
            for place, group in enumerate(self._groups):
                first = group.first(hit * size, size)
                found = [self._cache.find(place, name) for name in names[first:]]
                tables.begin(place, first, found)
            tables.keyed = hit
            tables.settled = hit * size
        return tables

    def _begin(self, seq: Sequence, tables: BlockTables, tokens: int) -> None:
        """Give a sequence its tables, with room for ``tokens`` positions."""
        self._tables[seq] = tables
        seq.blocks = tables.blocks[max(self._shown, 0)]
        seq.states = tables.states()
        self._grant(seq, tables, tokens)

    def _grant(self, seq: Sequence, tables: BlockTables, tokens: int) -> None:
        """Lengthen the tables to ``tokens`` positions; there is room."""
        needed = tables.new_blocks(tokens)
        if needed > self._free:
            self._evict(needed - self._free)
        self._free -= needed
        for place, blocks in enumerate(tables.blocks):
            if missing := tables.lengthen(place, tokens):
                blocks += self._take(missing)
        seq.held.blocks = max(seq.held.blocks, -(-tokens // self.block_tokens))
        tables.due = tables.next_change(tokens, self._lag)

    def _advance(self, seq: Sequence, tables: BlockTables, tokens: int) -> None:
        """Let a decode leave what is behind it and go on to ``tokens`` positions."""
        self._name(seq, tables, tokens - 1)
        self._leave_behind(seq, tables, tokens - 1)
        self._grant(seq, tables, tokens)

    def _leave_behind(self, seq: Sequence, tables: BlockTables, computed: int) -> None:
        """Let go of the blocks that no position after ``computed`` ones needs.

        For a step that is decided ahead, what the one before it computes is not computed yet.
        """
        if not self._lag or computed > seq.base_computed_tokens:
            tables.settled = computed - self._lag
        self._let_go(tables.leave_behind(tables.settled))

    def _let_go(self, blocks: list[int]) -> None:
        """Take a holder from each block, in this order."""
        idle, names, others = self._cache.idle, self._cache.names, self._others
        for block in blocks:
            if block in others:
                others[block] -= 1
                if not others[block]:
                    del others[block]
            elif block in names:
                idle[block] = None
            elif block >= 0:
                self._returned.append(block)
                self._free += 1

    def _hold(self, block: int) -> None:
        if block in self._cache.idle:
            del self._cache.idle[block]
        else:
            self._others[block] = self._others.get(block, 0) + 1

    def _name(self, seq: Sequence, tables: BlockTables, tokens: int) -> None:
        """Name the blocks that ``tokens`` positions fill, those that the sequence holds."""
        start, full = tables.keyed, tokens // self.block_tokens
        if full <= start or not self.shares_prefixes:
            return
        self._found = None
        names = block_names(seq, start, full, self.block_tokens)
        for place, blocks in enumerate(tables.blocks):
            for number in range(max(start, tables.firsts[place]), full):
                if blocks[number] >= 0:
                    self._cache.add(place, names[number - start], blocks[number])
        tables.keyed = seq.held.keyed_blocks = full

    def _evict(self, blocks: int) -> None:
        """Forget so many idle cached blocks: they are free."""
        if blocks > len(self._cache.idle):
            raise AssertionError("more blocks are given out than there are")
        self._found = None
        self._returned += [self._cache.evict() for _ in range(blocks)]
        self._free += blocks
