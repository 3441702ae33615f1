"""Tiers of the prefix cache beyond the device: prompts outlive their eviction from it.

Every full prompt block is written through to host memory as it is computed (in the background, at
no cost here), whole keys only, least recently used first out. What the device has lost and the host
still has is loaded over the host link instead of being computed (HiCache of SGLang, LMCache).
"""

from math import ceil
from typing import NamedTuple, TypeAlias

from servetwin.policies.sequence import Sequence

# (key, first block in the prompt) of the blocks that one key names.
Part: TypeAlias = tuple[int, int]


class KeptPart(NamedTuple):
    """A part that the host is to hold: where its sequence has it on the device."""

    seq: Sequence
    blocks: list[int]
    """The sequence's block table, which stays as it is when the sequence gives it back."""


class HostMoves:
    """Which parts were kept, loaded and dropped in the decision of a step, in the order of copying.

    ``computed`` parts are on the device before the step. What is loaded from the host is there
    until then, and may be dropped by the same decision. ``coming`` parts the step computes.
    """

    __slots__ = ("coming", "computed", "dropped", "loads")

    def __init__(self) -> None:
        self.computed: dict[Part, KeptPart] = {}
        # First block and end, in the block table of each sequence that is loaded.
        self.loads: dict[Sequence, tuple[int, int]] = {}
        self.dropped: dict[Part, None] = {}
        self.coming: dict[Part, KeptPart] = {}

    def keep(self, part: Part, seq: Sequence, is_computed: bool) -> None:
        """Note a part that the host is to hold."""
        held = KeptPart(seq, seq.blocks)
        if is_computed:
            self.computed[part] = held
            self.dropped.pop(part, None)
        else:
            self.coming[part] = held

    def load(self, seq: Sequence, start: int, end: int) -> None:
        """Note that blocks ``start`` to ``end`` - 1 of a sequence come from the host."""
        self.loads[seq] = (start, end)

    def drop(self, part: Part) -> None:
        """Note a part that the host holds no longer."""
        self.coming.pop(part, None)
        self.dropped[part] = None


class Tier:
    """Named parts of prompts in one memory, at most ``capacity_blocks`` blocks, oldest use first.

    A part that a step computes can be found once that step has ended.
    """

    def __init__(self, capacity_blocks: int, block_tokens: int = 1) -> None:
        self.capacity_blocks = capacity_blocks
        self._block_tokens = block_tokens
        self.blocks = 0
        # The blocks of each part.
        self.parts: dict[Part, int] = {}
        # Parts that were not computed when they came, by the sequence that computes them.
        self.coming: dict[Part, Sequence] = {}

    def put(self, part: Part, size: int, writer: Sequence | None) -> None:
        """Hold a part, as the one used last; ``writer`` is still to compute it."""
        self.parts[part] = size
        self.blocks += size
        if writer is not None:
            self.coming[part] = writer

    def take(self, part: Part) -> Sequence | None:
        """Give up a part; return who is still to compute it."""
        self.blocks -= self.parts.pop(part)
        return self.coming.pop(part, None)

    def overflow(self) -> Part | None:
        """Return the part that must go, the one used least recently; None while all fit."""
        return next(iter(self.parts)) if self.blocks > self.capacity_blocks else None

    def has(self, part: Part) -> bool:
        """Return whether a part is here and has been computed by a step that has ended."""
        if part not in self.parts:
            return False
        writer = self.coming.get(part)
        if writer is None:
            return True
        if writer.computed_tokens < (part[1] + self.parts[part]) * self._block_tokens:
            return False
        del self.coming[part]
        return True


class HostTier:
    """Which named parts of prompts host memory holds, and a memory behind it.

    What host memory has no room for goes to the ``far`` memory (an SSD), and comes back from it. A
    pool that servers share holds all that any of them keeps. A block from there takes
    ``far_slowdown`` times as long as from the host, and each load as long as ``far_latency_tokens``
    positions more.
    """

    def __init__(
        self, capacity_blocks: int, block_tokens: int = 1, far_blocks: int = 0,
        far_slowdown: float = 1.0, far_latency_tokens: int = 0,
    ) -> None:  # fmt: skip
        self._near = Tier(capacity_blocks, block_tokens)
        self.far = Tier(far_blocks, block_tokens)
        self._shares = False
        self._far_slowdown, self._far_latency_tokens = far_slowdown, far_latency_tokens
        self._block_tokens = block_tokens
        self._moves: HostMoves | None = None

    def share(self, other: "HostTier") -> None:
        """Use the far memory of another server, or of none but this, as a pool."""
        self.far, self._shares = other.far, True

    def watch(self) -> HostMoves:
        """Return what knows from now on of all that comes and goes."""
        self._moves = self._moves or HostMoves()
        return self._moves

    def find(self, seq: Sequence, start: int, limit: int) -> int:
        """Blocks of the prompt from place ``start`` on that are here, up to ``limit``."""
        return sum(self._held(seq, start, limit))

    def _held(self, seq: Sequence, start: int, limit: int) -> tuple[int, int]:
        """Return the blocks from ``start`` on that are in host memory, and in the far one."""
        place, near, far = start, 0, 0
        while place < limit:
            part = _part_of(seq, place)
            end = min((place // seq.key_blocks + 1) * seq.key_blocks, limit)
            if part is None:
                break
            if self._near.has(part):
                near += end - place
            elif self.far.has(part):
                far += end - place
            else:
                break
            place = end
        return near, far

    def load(self, seq: Sequence, start: int, limit: int) -> int:
        """Load what ``find`` finds with the next step; return it as positions of the host link."""
        near, far = self._held(seq, start, limit)
        if self._moves is not None:
            self._moves.load(seq, start, start + near)
        waits = self._far_latency_tokens if far else 0
        return waits + ceil((near + far * self._far_slowdown) * self._block_tokens)

    def keep(self, seq: Sequence, blocks: int, computed_blocks: int | None = None) -> None:
        """The first ``blocks`` of the prompt are in use: the host holds them, most recent last.

        The step that is being decided computes them from ``computed_blocks`` on (None: no block).
        """
        size, near, far, moves = seq.key_blocks, self._near, self.far, self._moves
        for unit in range(min(blocks // size, len(seq.block_keys))):
            part = _part_of(seq, unit * size)
            assert part is not None
            if part in near.parts:
                writer = near.take(part)
            elif part in far.parts:
                writer = far.take(part)
            else:
                is_computed = computed_blocks is None or (unit + 1) * size <= computed_blocks
                writer = None if is_computed else seq
                if moves is not None:
                    moves.keep(part, seq, is_computed)
            near.put(part, size, writer)
            if self._shares:
                if part in far.parts:
                    far.take(part)
                far.put(part, size, writer)
        while (oldest := near.overflow()) is not None:
            blocks, writer = near.parts[oldest], near.take(oldest)
            if not self._shares:
                far.put(oldest, blocks, writer)
            if moves is not None:
                moves.drop(oldest)
        while (oldest := far.overflow()) is not None:
            far.take(oldest)

    def settle(self, seq: Sequence) -> None:
        """Forget what the sequence, which gives its memory back, was to compute and did not."""
        if not (self._near.coming or self.far.coming):
            return
        for unit in range(len(seq.block_keys)):
            part = _part_of(seq, unit * seq.key_blocks)
            for tier in (self._near, self.far):
                if part is not None and tier.coming.get(part) is seq and not tier.has(part):
                    self._forget(tier, part)

    def forget(self) -> None:
        """Forget every part: one of them was never computed."""
        for tier in (self._near, self.far):
            for part in list(tier.parts):
                self._forget(tier, part)

    def _forget(self, tier: Tier, part: Part) -> None:
        tier.take(part)
        if self._moves is not None:
            self._moves.drop(part)


def _part_of(seq: Sequence, place: int) -> Part | None:
    """The name of the key that covers a block, whichever block of it."""
    return seq.key_of_block(place // seq.key_blocks * seq.key_blocks)
