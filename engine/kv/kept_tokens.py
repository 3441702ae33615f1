"""Which positions a windowed KV memory keeps, and where. Free of torch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class KeptTokens:
    """The first ``sinks`` positions and the last ``window`` ones, of which each takes the place of
    the one that leaves the window.
    """

    window: int
    sinks: int = 0

    @property
    def total(self) -> int:
        """The most positions that are kept of a sequence."""
        return self.sinks + self.window

    def positions(self, computed_tokens: int) -> NDArray[np.int64]:
        """Return the positions that are kept of so many, in order."""
        first = max(self.sinks, computed_tokens - self.window)
        sinks = np.arange(min(self.sinks, computed_tokens))
        return np.concatenate([sinks, np.arange(first, computed_tokens)])

    def slots(
        self, blocks: list[int], positions: NDArray[np.int64], block_tokens: int
    ) -> NDArray[np.int64]:
        """Return where positions lie in the blocks of a sequence."""
        place = np.minimum(positions, self.sinks + (positions - self.sinks) % self.window)
        first_slots = np.array(blocks, dtype=np.int64) * block_tokens
        found: NDArray[np.int64] = first_slots[place // block_tokens] + place % block_tokens
        return found

    def slot(self, blocks: list[int], position: int, block_tokens: int) -> int:
        """Return where one position lies."""
        place = min(position, self.sinks + (position - self.sinks) % self.window)
        return blocks[place // block_tokens] * block_tokens + place % block_tokens
