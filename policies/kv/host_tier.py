"""A host-memory tier of the prefix cache: prompts outlive their eviction from the device.

Every full prompt block is written through to host memory as it is computed (in the background, at
no cost here), whole keys only, least recently used first out. What the device has lost and the host
still has is loaded over the host link instead of being computed (HiCache of SGLang, LMCache).
"""

from policies.sequence import Sequence


class HostTier:
    """Which named parts of prompts host memory holds, at most ``capacity_blocks`` blocks."""

    def __init__(self, capacity_blocks: int) -> None:
        self._capacity_blocks = capacity_blocks
        self._blocks = 0
        self._parts: dict[tuple[int, int], int] = {}  # blocks by key, the oldest use first

    def find(self, seq: Sequence, start: int, limit: int) -> int:
        """Blocks of the prompt from place ``start`` on that the host holds, up to ``limit``."""
        place = start
        while place < limit:
            key = _part_of(seq, place)
            if key is None or key not in self._parts:
                break
            place = (place // seq.key_blocks + 1) * seq.key_blocks
        return max(0, min(place, limit) - start)

    def keep(self, seq: Sequence, blocks: int) -> None:
        """The first ``blocks`` of the prompt are in use: the host holds them, most recent last."""
        size = seq.key_blocks
        for unit in range(min(blocks // size, len(seq.block_keys))):
            key = _part_of(seq, unit * size)
            assert key is not None
            if self._parts.pop(key, None) is None:
                self._blocks += size
            self._parts[key] = size
        while self._blocks > self._capacity_blocks:
            oldest = next(iter(self._parts))
            self._blocks -= self._parts.pop(oldest)


def _part_of(seq: Sequence, place: int) -> tuple[int, int] | None:
    """The name of the key that covers a block, whichever block of it."""
    return seq.key_of_block(place // seq.key_blocks * seq.key_blocks)
