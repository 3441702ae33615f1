"""Paged KV memory: fixed blocks, handed out one by one (vLLM, SOSP 2023)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.block_pool import BlockPool
from servetwin.policies.protocols import KVUsage
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr

if TYPE_CHECKING:
    from servetwin.policies.kv.host_tier import HostMoves, HostTier
    from servetwin.policies.prefix.prefix_index import PrefixIndex
    from servetwin.policies.prefix.prefix_run import HeldRun
    from servetwin.policies.prefix.prefix_tree import PrefixTree


@mypyc_attr(allow_interpreted_subclasses=True)
class PagedKV(BlockPool):
    """A pool of blocks; with ``config.prefix_cache``, equal prompt blocks are shared.

    Waste is at most one partly filled block per sequence. The pool counts blocks; *which* block a
    sequence holds is settled when an executor or a prefix index needs to know (``table``).
    New blocks are taken from those never used, then from those given back, and their room from
    the free ones, then from idle cached ones.
    """

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        self.shares_prefixes = config.prefix_cache
        # Finds the blocks that sequences share; without a prefix cache, those of forks alone.
        self._index: PrefixIndex | None = None
        if config.prefix_cache:
            from servetwin.policies.prefix.prefix_index import build_index

            self._index = build_index(config)
        self._keeps_answers = config.prefix_cache and config.prefix_index == "blocks"
        # Whether others may find all that a sequence has computed, committed or not.
        self._knows_all = not config.draft_rows or config.admission == "full"
        self._host = _host_tier(config)
        self._filling: Sequence | None = None
        # Whose leading tokens the index of all blocks is still to learn of, and how many.
        self._filled_tokens = 0

    def cached_prefix(self, seq: Sequence) -> int:
        """Return the leading prompt tokens found here or in the host, in whole blocks."""
        if self._index is None or not self.shares_prefixes:
            return 0
        if self._keeps_answers:
            self._settle()
        limit = self._shareable(seq)
        blocks, _ = self._index.find(seq, limit)
        if self._host is not None:
            blocks += self._host.find(seq, blocks, limit)
        return blocks * self.block_tokens

    def prefix_tree(self) -> "PrefixTree | None":
        """Return what alone decides on ``cached_prefix``, where that is a tree."""
        if self._host is not None or not self.shares_prefixes or self._keeps_answers:
            return None
        from servetwin.policies.prefix.prefix_tree import PrefixTree

        assert isinstance(self._index, PrefixTree)
        return self._index

    def watch_host(self) -> "HostMoves | None":
        """Return what knows of all that moves to and from host memory; the reader empties it."""
        return self._host.watch() if self._host is not None else None

    def share_far(self, other: "PagedKV") -> None:
        """Use the far memory of another server's host tier in place of an own one."""
        if self._host is not None and other._host is not None:
            self._host.share(other._host)

    def reserve_part(self, seq: Sequence, tokens: int, fitting_tokens: int) -> bool:
        """Reserve as ``reserve`` does, but only with room for ``fitting_tokens`` positions."""
        if self._keeps_answers:
            self._settle()
        needed = -(-tokens // self.block_tokens)
        fitting = -(-fitting_tokens // self.block_tokens)
        available = self._free - self._watermark
        if self._watermark != self._watermark_alone and self._available() == self.total_blocks:
            available = self._free - self._watermark_alone
        if not self.shares_prefixes:
            if fitting > available:
                return False
        elif self._hold_prefix(seq, needed, fitting, available):
            needed = max(needed, seq.held.keyed_blocks)
        else:
            return False
        self._free -= needed - seq.held.keyed_blocks
        seq.held.blocks = needed
        return True

    def extend(self, seq: Sequence, tokens: int) -> bool:
        """Give a sequence outside a lockstep group room for ``tokens`` positions, or False."""
        held = -(-seq.base_computed_tokens // self.block_tokens)
        if held < seq.held.blocks:
            held = seq.held.blocks
        missing = -(-tokens // self.block_tokens) - held
        if missing > 0:
            if missing > self._free and not self._find_room(missing):
                return False
            self._free -= missing
            held += missing
        seq.held.blocks = held
        return True

    def commit(self, seq: Sequence, tokens: int) -> None:
        """Let others find the full blocks among the first ``tokens`` positions.

        Only blocks of the prompt are found; with ``prefix_index: blocks``, of the answer too. That
        index learns of them when it is next asked, or another sequence fills blocks.
        """
        if self._keeps_answers:
            if self._filling is not seq:
                if self._filling is not None:
                    self._keep(self._filling, self._filled_tokens)
                self._filling = seq
            self._filled_tokens = tokens
        elif self.shares_prefixes and seq.computed_tokens < seq.prompt_tokens:
            self._keep(seq, min(tokens, seq.prompt_tokens))

    def fork(self, seq: Sequence, child: Sequence, tokens: int) -> bool:
        """Copy-on-write: ``child`` shares the full blocks, and copies a partly filled last one.

        The last sequence that shares a partly filled block writes into it in place (vLLM, SOSP
        2023, section 4.4), so k answers copy it k - 1 times.
        """
        self._settle()
        index = self._index
        if index is None:
            from servetwin.policies.prefix.prefix_tree import PrefixTree

            index = self._index = PrefixTree("lru")
        if not self.shares_prefixes:
            index.insert(seq, seq.computed_tokens // self.block_tokens)
        needed = -(-tokens // self.block_tokens)
        private = needed - seq.held.keyed_blocks
        if private > self._free and not self._find_room(private):
            return False
        index.share(seq, child)
        child.base_computed_tokens = seq.computed_tokens
        child.held.blocks = needed
        self._free -= private
        return True

    def release(self, seq: Sequence) -> None:
        """Give back every block; the sequence does not decode any more."""
        held = -(-seq.base_computed_tokens // self.block_tokens)
        if held < seq.held.blocks:
            held = seq.held.blocks
        seq.held.blocks = 0
        if self._host is not None:
            self._host.settle(seq)
        if self._keeps_answers:
            self._settle()
            if self._knows_all and not seq.held.on_host:
                self._keep(seq, seq.base_computed_tokens)
        if self._index is not None:
            shared_blocks, numbers = self._index.release(seq)
            self._free += held - shared_blocks
            self._returned += reversed(numbers)
            if not self.shares_prefixes:
                self._evict(self._index.idle_blocks)
        else:
            self._free += held
            if not seq.blocks:
                return
            self._returned += reversed(seq.blocks)
        seq.blocks = []

    def table(self, seq: Sequence, tokens: int) -> list[int]:
        """Return the block table (``seq.blocks``), long enough for the first ``tokens`` positions.

        They must have been granted by ``reserve`` or ``grow``, or be what
        ``repeatable_steps`` promised.
        """
        needed = -(-tokens // self.block_tokens)
        if len(seq.blocks) < min(needed, seq.held.keyed_blocks):
            for run in reversed(self._runs(seq)):
                if len(seq.blocks) < run.end:
                    run.blocks += self._take(run.size - len(run.blocks))
                    seq.blocks += run.blocks[len(seq.blocks) - run.start :]
        self._number(seq, needed)
        return seq.blocks

    def forget_idle(self) -> None:
        """Forget every cached block that no sequence holds: one of them was never computed."""
        if self._index is not None:
            self._evict(self._index.idle_blocks)
        if self._host is not None:
            self._host.forget()

    def usage(self, seqs: Iterable[Sequence]) -> KVUsage:
        """Return where the memory is, given all sequences that hold any of it."""
        self._settle()
        size = self.block_tokens
        computed: dict[HeldRun, list[int]] = {}
        private = reserved_blocks = wasted = 0
        for seq in seqs:
            shared_blocks = 0
            for run in self._runs(seq):
                shared_blocks += run.size
                computed.setdefault(run, []).append(seq.computed_tokens)
            private += max(0, seq.computed_tokens - shared_blocks * size)
            held = self._held(seq)
            reserved_blocks += held - shared_blocks
            wasted += max(0, held * size - seq.final_kv_tokens)
        filled = {
            run: min(max(max(tokens) - run.start * size, 0), run.size * size)
            for run, tokens in computed.items()
        }
        live = private + sum(filled.values())
        held = (reserved_blocks + sum(run.size for run in filled)) * size
        free, cached = self._free * size, (self._available() - self._free) * size
        shared = sum(tokens for run, tokens in filled.items() if len(computed[run]) > 1)
        others = {"cached_tokens": cached, "shared_tokens": shared}
        return KVUsage.of(self.capacity_tokens, held, live, wasted, free, **others)

    def check(self, seqs: Iterable[Sequence]) -> None:
        """Assert the invariants of the pool against all sequences that hold blocks."""
        tables: set[int] = set()
        shared: dict[HeldRun, int] = {}
        private = 0
        for seq in seqs:
            private_table, private_blocks = set(seq.blocks), self._held(seq)
            for run in self._runs(seq):
                shared[run] = shared.get(run, 0) + 1
                private_blocks -= run.size
                private_table.difference_update(run.blocks)
                table = seq.blocks[run.start : run.end]
                assert table == run.blocks[: len(table)], "a shared block has two numbers"
            private += private_blocks
            if not tables.isdisjoint(private_table):
                block = min(tables & private_table)
                raise AssertionError(f"block {block} is in two tables, {seq.request_id!r}'s")
            tables |= private_table
        numbers = [block for run in shared for block in run.blocks]
        assert len(set(numbers)) == len(numbers), "a block is shared at two places"
        assert tables.isdisjoint(numbers), "a shared block is held privately"
        idle, held = 0, 0
        if self._index is not None:
            idle, held = self._index.idle_blocks, self._index.held_blocks
        for run, holders in shared.items():
            assert run.holders == holders, "a shared block's holders are miscounted"
        assert sum(run.size for run in shared) == held, "a shared block's holders are miscounted"
        assert self._free + idle + held + private == self.total_blocks, "blocks leak"
        assert self._free + idle >= 0, "more blocks are held than there are"

    def _shareable(self, seq: Sequence) -> int:
        """Return how many blocks a hit may cover: the last token is always computed anew."""
        tokens = seq.prompt_tokens
        if self._keeps_answers:
            tokens += seq.base_generated_tokens
        return (tokens - 1) // self.block_tokens

    def _keep(self, seq: Sequence, tokens: int) -> None:
        """Let the sequence, or another one, find the full blocks among the first ``tokens``."""
        assert self._index is not None
        full = tokens // self.block_tokens
        if full > seq.held.keyed_blocks:
            self._index.insert(seq, full)
        if self._host is not None:
            named = min(full, seq.prompt_tokens // self.block_tokens)
            self._host.keep(seq, named, seq.computed_tokens // self.block_tokens)

    def _hold_prefix(self, seq: Sequence, needed: int, fitting: int, available: int) -> bool:
        assert self._index is not None
        limit = self._shareable(seq)
        cached, idle = self._index.find(seq, limit)
        if fitting - cached > available + self._index.idle_blocks - idle:
            return False
        self._index.hold(seq, limit)
        if self._host is not None:
            seq.held.loaded_tokens = self._host.load(seq, cached, limit)
        if needed - cached > self._free:
            self._find_room(needed - cached)
        return True

    def _runs(self, seq: Sequence) -> "list[HeldRun]":
        """Return the runs of blocks that a sequence may share, the last first."""
        return [] if self._index is None else list(self._index.runs(seq))

    def free_tokens(self) -> int:
        """Return the tokens that could be given out now, cached prefixes included."""
        idle_blocks = 0 if self._index is None else self._index.idle_blocks
        return (self._free + idle_blocks) * self.block_tokens

    def _available(self) -> int:
        return self._free + (self._index.idle_blocks if self._index is not None else 0)

    def _find_room(self, needed: int) -> bool:
        """Return whether so many can be given out; idle ones go for them, now or by ``_settle``."""
        missing, index = needed - self._free, self._index
        if index is None or missing > index.idle_blocks:
            return False
        if not self._keeps_answers:
            self._returned += index.evict(missing)
            self._free += missing
        return True

    def _settle(self) -> None:
        """Tell the index of all blocks what it was spared: blocks filled last, and evictions."""
        if self._filling is not None:
            filling, self._filling = self._filling, None
            self._keep(filling, self._filled_tokens)
        if self._free < 0:
            self._evict(-self._free)

    def _evict(self, blocks: int) -> None:
        """Forget so many idle cached blocks: they are free."""
        index = self._index
        if index is None or blocks > index.idle_blocks:
            raise AssertionError("more blocks are given out than there are")
        self._returned += index.evict(blocks)
        self._free += blocks


def _host_tier(config: PolicyConfig) -> "HostTier | None":
    """Return the tiers of the prefix cache beyond the device; None where none has room."""
    size = config.block_tokens
    near, far = config.host_cache_tokens // size, config.far_cache_tokens // size
    if not (near or far):
        return None
    from servetwin.policies.kv.host_tier import HostTier

    latency_tokens = config.far_cache_latency_tokens
    return HostTier(near, size, far, config.far_cache_slowdown, latency_tokens)
