"""A host-memory tier of the prefix cache: prompts outlive their eviction from the device.

Every full prompt block is written through to host memory as it is computed (in the background, at
no cost here), whole keys only, least recently used first out. What the device has lost and the host
still has is loaded over the host link instead of being computed (HiCache of SGLang, LMCache).
"""

from typing import NamedTuple, TypeAlias

from servetwin.policies.sequence import Sequence

Part: TypeAlias = tuple[int, int]
"""(key, first block in the prompt) of the blocks that one key names."""


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
        self.loads: dict[Sequence, tuple[int, int]] = {}
        """First block and end, in the block table of each sequence that is loaded."""
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


class HostTier:
    """Which named parts of prompts host memory holds, at most ``capacity_blocks`` blocks.

    A part that a step computes can be found once that step has ended.
    """

    def __init__(self, capacity_blocks: int, block_tokens: int = 1) -> None:
        self._capacity_blocks = capacity_blocks
        self._block_tokens = block_tokens
        self._blocks = 0
        self._parts: dict[Part, int] = {}  # blocks by key, the oldest use first
        self._coming: dict[Part, Sequence] = {}
        """Parts that were not computed when they were kept, by the sequence that computes them."""
        self._moves: HostMoves | None = None

    def watch(self) -> HostMoves:
        """Return what knows from now on of all that comes and goes."""
        self._moves = self._moves or HostMoves()
        return self._moves

    def find(self, seq: Sequence, start: int, limit: int) -> int:
        """Blocks of the prompt from place ``start`` on that the host holds, up to ``limit``."""
        place = start
        while place < limit:
            key = _part_of(seq, place)
            if key is None or key not in self._parts or not self._is_computed(key, seq.key_blocks):
                break
            place = (place // seq.key_blocks + 1) * seq.key_blocks
        return max(0, min(place, limit) - start)

    def load(self, seq: Sequence, start: int, limit: int) -> int:
        """Return what ``find`` finds: it goes to the device with the next step."""
        blocks = self.find(seq, start, limit)
        if self._moves is not None:
            self._moves.load(seq, start, start + blocks)
        return blocks

    def keep(self, seq: Sequence, blocks: int, computed_blocks: int | None = None) -> None:
        """The first ``blocks`` of the prompt are in use: the host holds them, most recent last.

        The step that is being decided computes them from ``computed_blocks`` on (None: no block).
        """
        size, moves = seq.key_blocks, self._moves
        for unit in range(min(blocks // size, len(seq.block_keys))):
            key = _part_of(seq, unit * size)
            assert key is not None
            if self._parts.pop(key, None) is None:
                self._blocks += size
                is_computed = computed_blocks is None or (unit + 1) * size <= computed_blocks
                if not is_computed:
                    self._coming[key] = seq
                if moves is not None:
                    moves.keep(key, seq, is_computed)
            self._parts[key] = size
        while self._blocks > self._capacity_blocks:
            self._forget(next(iter(self._parts)))

    def settle(self, seq: Sequence) -> None:
        """Forget what the sequence, which gives its memory back, was to compute and did not."""
        if not self._coming:
            return
        for unit in range(len(seq.block_keys)):
            key = _part_of(seq, unit * seq.key_blocks)
            if key is None or self._coming.get(key) is not seq:
                continue
            if not self._is_computed(key, seq.key_blocks):
                self._forget(key)

    def forget(self) -> None:
        """Forget every part: one of them was never computed."""
        while self._parts:
            self._forget(next(iter(self._parts)))

    def _is_computed(self, key: Part, size: int) -> bool:
        """Return whether a part that is kept has been computed by a step that has ended."""
        writer = self._coming.get(key)
        if writer is None:
            return True
        if writer.computed_tokens < (key[1] + size) * self._block_tokens:
            return False
        del self._coming[key]
        return True

    def _forget(self, key: Part) -> None:
        self._blocks -= self._parts.pop(key)
        self._coming.pop(key, None)
        if self._moves is not None:
            self._moves.drop(key)


def _part_of(seq: Sequence, place: int) -> Part | None:
    """The name of the key that covers a block, whichever block of it."""
    return seq.key_of_block(place // seq.key_blocks * seq.key_blocks)
