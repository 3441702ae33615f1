"""Paged KV memory: fixed blocks, handed out one by one (vLLM, SOSP 2023)."""

from collections.abc import Iterable
from math import ceil

from policies.config import PolicyConfig
from policies.kv.host_tier import HostTier
from policies.lockstep import Lockstep
from policies.prefix.prefix_index import PrefixIndex, build_index
from policies.prefix.prefix_tree import PrefixTree
from policies.protocols import KVLayout, KVUsage
from policies.sequence import Sequence
from workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class PagedKV:
    """A pool of blocks; with ``config.prefix_cache``, equal prompt blocks are shared.

    Waste is at most one partly filled block per sequence. The pool counts blocks; *which* block a
    sequence holds is settled when an executor or a prefix index needs to know (``table``).
    New blocks are taken from those never used, then from those given back, and their room from
    the free ones, then from idle cached ones.
    """

    layout: KVLayout = "paged"

    def __init__(self, config: PolicyConfig) -> None:
        self.block_tokens = config.block_tokens
        self.total_blocks = config.kv_tokens // config.block_tokens
        self.capacity_tokens = self.total_blocks * self.block_tokens
        self.shares_prefixes = config.prefix_cache
        self._index = build_index(config)
        host_blocks = config.host_cache_tokens // config.block_tokens
        self._host = HostTier(host_blocks) if host_blocks else None
        self._forks = PrefixTree("lru")
        """Prompts that several answers share, where no prefix cache keeps them."""
        self._free = self.total_blocks
        """Blocks that no sequence holds and no index remembers."""
        self._watermark = ceil(config.watermark * self.total_blocks)
        self._untouched = 0  # blocks from here on were never handed out
        self._returned: list[int] = []

    def refusal(self, seq: Sequence) -> str | None:
        """Return why ``seq`` can never be held, even alone; None where it can."""
        blocks = -(-(seq.prompt_tokens + seq.max_tokens - 1) // self.block_tokens)
        if blocks + self._watermark <= self.total_blocks:
            return None
        kept = f", {self._watermark} of them kept free" if self._watermark else ""
        return (
            f"needs {seq.final_kv_tokens} KV tokens, the memory has {self.capacity_tokens} "
            f"({self.total_blocks} blocks of {self.block_tokens}{kept})"
        )

    def cached_prefix(self, seq: Sequence) -> int:
        """Return the leading prompt tokens found here or in the host, in whole blocks."""
        if self._index is None:
            return 0
        limit = self._shareable(seq)
        found, _ = self._index.find(seq, limit)
        if self._host is not None:
            found += self._host.find(seq, found, limit)
        return found * self.block_tokens

    def reserve(self, seq: Sequence, tokens: int) -> bool:
        """Take the cached prefix and room for ``tokens`` positions; False, unchanged, without room.

        For a sequence that holds nothing yet; decodes grow in lockstep.
        """
        needed = -(-tokens // self.block_tokens)
        available = self._free - self._watermark
        if self._index is None:
            if needed > available:
                return False
        elif not self._hold_prefix(seq, needed, available):
            return False
        self._free -= needed - seq.keyed_blocks
        seq.held_blocks = needed
        if self._index is not None:
            self.table(seq, tokens)
        return True

    def commit(self, seq: Sequence, tokens: int) -> None:
        """Let others find the full prompt blocks among the first ``tokens`` positions."""
        if self._index is not None and seq.computed_tokens < seq.prompt_tokens:
            full = min(tokens, seq.prompt_tokens) // self.block_tokens
            if full > seq.keyed_blocks:
                self._index.insert(seq, full)
            if self._host is not None:
                self._host.keep(seq, full)

    def grow(self, lockstep: Lockstep, steps: int = 1) -> bool:
        """Take room for ``steps`` more positions of every member; False, unchanged, without it."""
        needed = lockstep.new_blocks(steps)
        if needed > self._free and not self._evict(needed):
            return False
        self._free -= needed
        lockstep.granted_step += steps
        return True

    def repeatable_steps(self, lockstep: Lockstep, limit: int) -> int:
        """Return how many more steps (at most ``limit``) ``grow`` would grant."""
        available = self._free if self._index is None else self._available()
        if lockstep.size * (limit // self.block_tokens + 1) <= available:
            return limit
        low, high = 0, limit + 1  # low fits, high does not (or is past the limit)
        while high - low > 1:
            middle = (low + high) // 2
            if lockstep.new_blocks(middle) <= available:
                low = middle
            else:
                high = middle
        return low

    def fork(self, seq: Sequence, child: Sequence, tokens: int) -> bool:
        """Copy-on-write: ``child`` shares the full blocks, and copies a partly filled last one.

        The last sequence that shares a partly filled block writes into it in place (vLLM, SOSP
        2023, section 4.4), so k answers copy it k - 1 times.
        """
        index = self._index or self._forks
        self.table(seq, seq.computed_tokens)
        if self._index is None:
            index.insert(seq, seq.computed_tokens // self.block_tokens)
        needed = -(-tokens // self.block_tokens)
        own = needed - index.held(seq)
        if own > self._free and not self._evict(own):
            return False
        child.blocks = list(index.share(seq, child))
        child.base_computed_tokens = seq.computed_tokens
        child.held_blocks = needed
        self._free -= own
        self.table(child, seq.computed_tokens)
        return True

    def release(self, seq: Sequence) -> None:
        """Give back every block; the sequence does not decode any more."""
        held = -(-seq.base_computed_tokens // self.block_tokens)
        if held < seq.held_blocks:
            held = seq.held_blocks
        if self._index is not None:
            self._release_shared(self._index, seq, held)
        elif seq.prefix is not None:
            self._release_shared(self._forks, seq, held)
            self._free += self._forks.idle_blocks
            self._returned += self._forks.evict(self._forks.idle_blocks)
        else:
            self._free += held
            self._returned += reversed(seq.blocks)
        seq.held_blocks = 0
        seq.blocks = []

    def table(self, seq: Sequence, tokens: int) -> list[int]:
        """Return the block table (``seq.blocks``), long enough for the first ``tokens`` positions.

        They must have been granted by ``reserve`` or ``grow``, or be what
        ``repeatable_steps`` promised.
        """
        missing = -(-tokens // self.block_tokens) - len(seq.blocks)
        if missing > 0:
            seq.blocks += self._take(missing)
        return seq.blocks

    def free_tokens(self) -> int:
        """Return the tokens that could be given out now, cached prefixes included."""
        if self._index is None:
            return self._free * self.block_tokens
        return self._available() * self.block_tokens

    def forget_idle(self) -> None:
        """Forget every cached block that no sequence holds: one of them was never computed."""
        if self._index is not None:
            self._evict(self._free + self._index.idle_blocks)

    def usage(self, seqs: Iterable[Sequence]) -> KVUsage:
        """Return where the memory is, given all sequences that hold any of it."""
        size, index = self.block_tokens, self._index or self._forks
        filled: dict[int, int] = {}
        holders: dict[int, int] = {}
        private = reserved_blocks = wasted = 0
        for seq in seqs:
            keyed = index.keyed(seq) if index else set()
            table = seq.blocks[: seq.keyed_blocks] if keyed else []
            for place, block in enumerate(table):
                if block in keyed:
                    here = min(max(seq.computed_tokens - place * size, 0), size)
                    filled[block] = max(filled.get(block, 0), here)
                    holders[block] = holders.get(block, 0) + 1
            shared_tokens = sum(block in keyed for block in table) * size
            private += max(0, seq.computed_tokens - shared_tokens)
            held = self._held(seq)
            reserved_blocks += held - sum(block in keyed for block in table)
            wasted += max(0, held * size - seq.final_kv_tokens)
        live = private + sum(filled.values())
        held, free = (reserved_blocks + len(filled)) * size, self._free * size
        cached = index.idle_blocks * size
        shared = sum(n for block, n in filled.items() if holders[block] > 1)
        others = {"cached_tokens": cached, "shared_tokens": shared}
        return KVUsage.of(self.capacity_tokens, held, live, wasted, free, **others)

    def check(self, seqs: Iterable[Sequence]) -> None:
        """Assert the invariants of the pool against all sequences that hold blocks."""
        index = self._index or self._forks
        tables: set[int] = set()
        shared: set[int] = set()
        private = 0
        for seq in seqs:
            keyed = index.keyed(seq)
            shared |= keyed
            private += self._held(seq) - len(keyed)
            for block in set(seq.blocks) - keyed:
                assert block not in tables, f"block {block} is in two tables, {seq.request_id!r}'s"
                tables.add(block)
        assert not shared & tables, "a shared block is held privately"
        idle, held = index.idle_blocks, index.held_blocks
        assert len(shared) == held, "a shared block's holders are miscounted"
        assert self._free + idle + held + private == self.total_blocks, "blocks leak"
        assert self._free >= 0, "more blocks are held than there are"

    def _held(self, seq: Sequence) -> int:
        """Blocks of a sequence; decodes that grow hold what they have been granted."""
        tokens, group = seq.computed_tokens, seq.lockstep
        if group is not None and group.granted_step > group.steps:
            tokens += group.granted_step - group.steps
        return max(seq.held_blocks, -(-tokens // self.block_tokens))

    def _shareable(self, seq: Sequence) -> int:
        """Leading blocks that a hit may cover: the last prompt token is always computed anew."""
        return (seq.prompt_tokens - 1) // self.block_tokens

    def _hold_prefix(self, seq: Sequence, needed: int, available: int) -> bool:
        assert self._index is not None
        limit = self._shareable(seq)
        found, idle = self._index.find(seq, limit)
        if needed - found > available + self._index.idle_blocks - idle:
            return False
        seq.blocks = self._index.hold(seq, limit)
        if self._host is not None:
            seq.loaded_tokens = self._host.find(seq, found, limit) * self.block_tokens
        missing = needed - found - self._free
        if missing > 0:
            self._evict(needed - found)
        return True

    def _release_shared(self, index: PrefixIndex, seq: Sequence, held: int) -> None:
        private = index.release(seq)
        self._free += held - len(seq.blocks) + len(private)
        self._returned += reversed(private)

    def _available(self) -> int:
        return self._free + (self._index.idle_blocks if self._index is not None else 0)

    def _evict(self, needed: int) -> bool:
        """Bring the free blocks up to ``needed`` at the cost of idle cached ones."""
        missing = needed - self._free
        if self._index is None or missing > self._index.idle_blocks:
            return False
        self._returned += self._index.evict(missing)
        self._free += missing
        return True

    def _take(self, blocks: int) -> list[int]:
        missing = blocks - (self.total_blocks - self._untouched) - len(self._returned)
        if missing > 0:
            self._evict(self._free + missing)
        fresh = min(blocks, self.total_blocks - self._untouched)
        taken = list(range(self._untouched, self._untouched + fresh))
        self._untouched += fresh
        for _ in range(blocks - fresh):
            taken.append(self._returned.pop())
        return taken
