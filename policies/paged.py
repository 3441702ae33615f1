"""Paged KV memory: fixed blocks, handed out one by one (vLLM, SOSP 2023)."""

from collections.abc import Iterable

from policies.config import PolicyConfig
from policies.prefix_cache import HashPrefixCache, shareable_blocks
from policies.protocols import KVLayout, KVUsage
from policies.sequence import Sequence


class PagedKV:
    """A pool of blocks; with ``config.prefix_cache``, equal prompt blocks are shared.

    Waste is at most one partly filled block per sequence. New blocks are taken from those never
    used, then from those given back, then from the idle cached ones, oldest first.
    """

    layout: KVLayout = "paged"

    def __init__(self, config: PolicyConfig) -> None:
        self.block_tokens = config.block_tokens
        self.total_blocks = config.kv_tokens // config.block_tokens
        self.capacity_tokens = self.total_blocks * self.block_tokens
        self.shares_prefixes = config.prefix_cache
        self._cache = HashPrefixCache() if config.prefix_cache else None
        self._untouched = 0  # blocks from here on were never handed out
        self._returned: list[int] = []
        self._holders: dict[int, int] = {}
        self._live: dict[Sequence, None] = {}

    def refusal(self, seq: Sequence) -> str | None:
        """Why ``seq`` can never be held, even alone; None where it can."""
        if self._blocks_for(seq.final_kv_tokens) <= self.total_blocks:
            return None
        return (
            f"needs {seq.final_kv_tokens} KV tokens, the memory has {self.capacity_tokens} "
            f"({self.total_blocks} blocks of {self.block_tokens})"
        )

    def cached_prefix(self, seq: Sequence) -> int:
        """Leading prompt tokens found in the cache: whole blocks, at most prompt - 1."""
        return len(self._match(seq)) * self.block_tokens

    def reserve(self, seq: Sequence, tokens: int) -> bool:
        """Grow the block table to cover ``tokens`` positions; False, unchanged, without room."""
        needed = self._blocks_for(tokens) - len(seq.blocks)
        if needed <= 0:
            return True
        hits = [] if seq.blocks else self._match(seq)
        if needed - len(hits) > self._available() - self._idle_among(hits):
            return False
        for block in hits:
            self._hold(block)
        seq.blocks.extend(hits)
        for _ in range(needed - len(hits)):
            seq.blocks.append(self._take())
        self._live[seq] = None
        return True

    def commit(self, seq: Sequence, tokens: int) -> None:
        """Remember the full prompt blocks among the first ``tokens`` positions for sharing."""
        if self._cache is None or seq.computed_tokens >= seq.prompt_tokens:
            return
        full = min(tokens // self.block_tokens, len(seq.block_keys))
        for index in range(seq.computed_tokens // self.block_tokens, full):
            self._cache.insert(seq.block_keys[index], seq.blocks[index])

    def release(self, seq: Sequence) -> None:
        """Give back every block, the tail first, so that prefixes outlive their continuations."""
        for block in reversed(seq.blocks):
            self._drop(block)
        seq.blocks.clear()
        self._live.pop(seq, None)

    def quiet_steps(self, seqs: list[Sequence], limit: int) -> int:
        """Steps (at most ``limit``) that all ``seqs`` can grow by one before a block is missing."""
        if self._blocks_to_grow(seqs, limit) <= self._available():
            return limit
        low, high = 0, limit  # low fits, high does not
        while high - low > 1:
            middle = (low + high) // 2
            if self._blocks_to_grow(seqs, middle) <= self._available():
                low = middle
            else:
                high = middle
        return low

    def free_tokens(self) -> int:
        """Tokens in blocks that could be handed out, idle cached ones included."""
        return self._available() * self.block_tokens

    def usage(self) -> KVUsage:
        """Where the memory is, counted block by block."""
        live = shared = 0
        filled: dict[int, int] = {}
        for seq in self._live:
            for index, block in enumerate(seq.blocks):
                here = seq.computed_tokens - index * self.block_tokens
                filled[block] = max(filled.get(block, 0), min(max(here, 0), self.block_tokens))
        live = sum(filled.values())
        shared = sum(tokens for block, tokens in filled.items() if self._holders[block] > 1)
        promised = len(self._holders) * self.block_tokens - live
        wasted = sum(self._tail_waste(seq) for seq in self._live)
        cached = self._cache.idle_blocks() * self.block_tokens if self._cache else 0
        return KVUsage(
            capacity_tokens=self.capacity_tokens,
            live_tokens=live,
            reserved_tokens=promised - wasted,
            internal_waste_tokens=wasted,
            external_waste_tokens=0,
            cached_tokens=cached,
            free_tokens=self.free_tokens() - cached,
            shared_tokens=shared,
        )

    def check(self, seqs: Iterable[Sequence]) -> None:
        """Assert the laws of the pool against the sequences that should hold blocks."""
        counted: dict[int, int] = {}
        for seq in seqs:
            for block in seq.blocks:
                counted[block] = counted.get(block, 0) + 1
        assert counted == self._holders, "a block's holders are miscounted"
        assert self._cache or all(n == 1 for n in counted.values()), "a block is in two tables"
        assert len(self._holders) + self._available() == self.total_blocks, "blocks leak"

    def _tail_waste(self, seq: Sequence) -> int:
        """Positions of the last block that the sequence will never fill."""
        return max(0, len(seq.blocks) * self.block_tokens - seq.final_kv_tokens)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def _blocks_to_grow(self, seqs: list[Sequence], steps: int) -> int:
        return sum(
            max(0, self._blocks_for(seq.computed_tokens + steps) - len(seq.blocks)) for seq in seqs
        )

    def _match(self, seq: Sequence) -> list[int]:
        if self._cache is None:
            return []
        return self._cache.match(seq.block_keys, shareable_blocks(seq, self.block_tokens))

    def _available(self) -> int:
        idle = self._cache.idle_blocks() if self._cache else 0
        return self.total_blocks - self._untouched + len(self._returned) + idle

    def _idle_among(self, blocks: list[int]) -> int:
        return sum(self._cache.is_idle(block) for block in blocks) if self._cache else 0

    def _take(self) -> int:
        if self._untouched < self.total_blocks:
            block = self._untouched
            self._untouched += 1
        elif self._returned:
            block = self._returned.pop()
        else:
            assert self._cache is not None
            block = self._cache.evict()
        self._holders[block] = 1
        return block

    def _hold(self, block: int) -> None:
        assert self._cache is not None
        self._cache.use(block)
        self._holders[block] = self._holders.get(block, 0) + 1

    def _drop(self, block: int) -> None:
        self._holders[block] -= 1
        if self._holders[block] == 0:
            del self._holders[block]
            if self._cache is None or not self._cache.retire(block):
                self._returned.append(block)
