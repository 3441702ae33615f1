"""KV memory that does not grow with every token: windows, hybrids, dropped tokens, states.

A window of W tokens keeps min(l, W) of l (Longformer, Beltagy 2020; with sinks, StreamingLLM, Xiao
2023; H2O's budgets, Zhang 2023, alike), a hybrid does so in some of its layers, a recurrence
(Mamba, RetNet) keeps a state whatever its length.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.block_pool import BlockPool
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.protocols import KVUsage
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr

IntArray: TypeAlias = npt.NDArray[np.int64]
Count = TypeVar("Count", int, IntArray)

_NOWHERE = -1


class Residency:
    """What is kept of l positions: state + l - share max(0, l - window) full-token equivalents.

    That is state + (1 - share) l + share min(l, window). It is counted in whole parts of a token,
    so that it is exact: ``kv_window_share`` stands for the nearest fraction with a denominator up
    to a million (0.8333333 for 5/6).
    """

    def __init__(self, config: PolicyConfig) -> None:
        share = Fraction(config.kv_window_share).limit_denominator()
        self._parts = share.denominator
        self._forgotten = 0 if config.kv_window_tokens is None else share.numerator
        """Parts that a token loses when it leaves the window."""
        self._window = config.kv_window_tokens or 0
        self._state = config.kv_state_tokens

    def pieces(self, positions: Count, size: int) -> Count:
        """Pieces of ``size`` full-token equivalents that hold what is kept of so many positions."""
        outside = (positions > self._window) * (positions - self._window)
        units = self._parts * (self._state + positions) - self._forgotten * outside
        return -(-units // (self._parts * size))


@mypyc_attr(allow_interpreted_subclasses=True)
class WindowedKV(BlockPool):
    """A pool of blocks, of which a sequence holds as many as its ``Residency`` needs.

    Blocks are counted; they have numbers where all layers keep the same tokens, else it is left
    open which layer's tokens lie where. A step's own tokens need no room beside the window: what is
    held is what is kept when the step has ended.
    """

    shares_prefixes = False

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        self._residency = Residency(config)
        self._has_numbers = config.kv_window_share == 1 and not config.kv_state_tokens
        """Whether all that a sequence keeps are tokens of all layers."""

    def cached_prefix(self, seq: Sequence) -> int:
        """Return 0: what left the window cannot be shared."""
        return 0

    def reserve_part(self, seq: Sequence, tokens: int, fitting_tokens: int) -> bool:
        """Reserve as ``reserve`` does, but only with room for ``fitting_tokens`` positions."""
        is_empty = self._free == self.total_blocks
        available = self._free - (self._watermark_alone if is_empty else self._watermark)
        if self._blocks(fitting_tokens) > available:
            return False
        self._hold(seq, self._blocks(tokens))
        return True

    def extend(self, seq: Sequence, tokens: int) -> bool:
        """Give a sequence outside a lockstep group room for ``tokens`` positions, or False."""
        held = self._held(seq)
        missing = max(0, self._blocks(tokens) - held)
        if missing > self._free:
            return False
        self._free -= missing
        seq.held_blocks = held + missing
        return True

    def commit(self, seq: Sequence, tokens: int) -> None:
        """Do nothing: prefixes are not shared."""

    def grow(self, lockstep: Lockstep, steps: int = 1) -> bool:
        """Take room for ``steps`` more positions of every member; False, unchanged, without it."""
        needed = self._growth(lockstep, steps)
        spare = self._spare(lockstep, steps) if self._spare_block else 0
        if needed + spare > self._free:
            return False
        self._free -= needed
        lockstep.granted_step += steps
        return True

    def fork(self, seq: Sequence, child: Sequence, tokens: int) -> bool:
        """``child`` has a copy of all that ``seq`` keeps; False, unchanged, without room for it.

        Nothing is shared: every answer moves its own window on, and changes its own state.
        """
        needed = self._blocks(tokens)
        if needed > self._free:
            return False
        self._hold(child, needed)
        child.base_computed_tokens = seq.computed_tokens
        return True

    def release(self, seq: Sequence) -> None:
        """Give back every block; the sequence does not decode any more."""
        self._free += self._held(seq)
        seq.held_blocks = 0
        if seq.blocks:
            self._returned += reversed(seq.blocks)
            seq.blocks = []

    def table(self, seq: Sequence, tokens: int) -> list[int]:
        """As many blocks, all nowhere, as ``tokens`` positions have; none if it has no such room.

        It says that the positions were granted, by ``reserve``, ``grow`` or the promise of
        ``repeatable_steps``. What is kept of them lies in ``seq.blocks`` then, if blocks have
        numbers: which position where in them is the executor's choice.
        """
        blocks = self._blocks(tokens)
        if blocks - self._held(seq) > self._free:
            return []
        if self._has_numbers:
            self._number(seq, blocks)
        return [_NOWHERE] * -(-tokens // self.block_tokens)

    def usage(self, seqs: Iterable[Sequence]) -> KVUsage:
        """Return where the memory is, given all sequences that hold any of it."""
        live = wasted = held = 0
        for seq in seqs:
            held_tokens = self._held(seq) * self.block_tokens
            held += held_tokens
            live += self._tokens(seq.computed_tokens)
            wasted += max(0, held_tokens - self._tokens(seq.final_kv_tokens))
        return KVUsage.of(self.capacity_tokens, held, live, wasted, self.free_tokens())

    def check(self, seqs: Iterable[Sequence]) -> None:
        """Assert the invariants of the pool against all sequences that hold blocks."""
        held = 0
        numbers: list[int] = []
        for seq in seqs:
            held += self._held(seq)
            numbers += seq.blocks
        assert len(set(numbers)) == len(numbers), "a block is in two tables"
        assert self._free + held == self.total_blocks, "blocks leak"
        assert self._free >= 0, "more blocks are held than there are"

    def _blocks(self, positions: int) -> int:
        return self._residency.pieces(positions, self.block_tokens)

    def _need(self, seq: Sequence) -> str:
        tokens, positions = self._tokens(seq.final_kv_tokens), seq.final_kv_tokens
        return f"{tokens} KV tokens for what it keeps of {positions} positions"

    def _tokens(self, positions: int) -> int:
        return self._residency.pieces(positions, 1)

    def _hold(self, seq: Sequence, blocks: int) -> None:
        self._free -= blocks
        seq.held_blocks = blocks

    def _held(self, seq: Sequence) -> int:
        """Blocks of a sequence; one that holds none may have a state all the same."""
        return super()._held(seq) if seq.held_blocks else 0

    def _growth(self, lockstep: Lockstep, steps: int) -> int:
        """Return the blocks that members need for ``steps`` positions beyond the granted."""
        return self._growth_from(_granted(lockstep), steps)

    def _growth_from(self, granted: IntArray, steps: int) -> int:
        pieces, size = self._residency.pieces, self.block_tokens
        more: IntArray = pieces(granted + steps, size) - pieces(granted, size)
        return int(more.sum())

    def _spare(self, lockstep: Lockstep, steps: int) -> int:
        """Return 1 where the last member must find a free block that it does not take."""
        last = _granted(lockstep)[-1:] + (steps - 1)
        return 1 - min(1, self._growth_from(last, 1))


def _granted(lockstep: Lockstep) -> IntArray:
    """Positions of each member up to the step that all have room for."""
    offsets = (seq.base_computed_tokens - seq.joined_step for seq in lockstep)
    return np.fromiter(offsets, np.int64, lockstep.size) + lockstep.granted_step
