"""A static tree of drafted tokens, as the rows of a pass. Free of torch.

Row 0 is the last token of the sequence, the root. The rows below follow level by level, the
children of a row beside each other; so a level of a tree of widths 2, 2 is rows 1 and 2, the next
rows 3 to 6. A chain is a tree of widths 1.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import mul


@dataclass(frozen=True)
class DraftTree:
    """``widths[i]`` proposals below each token of level i."""

    widths: tuple[int, ...]

    @cached_property
    def level_sizes(self) -> tuple[int, ...]:
        """Rows of each level: 1 of the root, then the products of the widths."""
        return tuple(accumulate(self.widths, mul, initial=1))

    @cached_property
    def level_starts(self) -> tuple[int, ...]:
        """First row of each level, and the number of all rows."""
        return tuple(accumulate(self.level_sizes, initial=0))

    @property
    def rows(self) -> int:
        """Rows of a pass: the root, and one for each drafted token."""
        return self.level_starts[-1]

    @property
    def drafts(self) -> int:
        """Drafted tokens."""
        return self.rows - 1

    @property
    def inner_rows(self) -> int:
        """Rows with children: the first ones."""
        return self.level_starts[-2]

    @property
    def is_chain(self) -> bool:
        """Whether each token has one proposal below it."""
        return all(width == 1 for width in self.widths)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Level of each row."""
        return tuple(level for level, size in enumerate(self.level_sizes) for _ in range(size))

    def first_child(self, row: int) -> int:
        """Return the first row below an inner row."""
        level = self.depths[row]
        place = row - self.level_starts[level]
        return self.level_starts[level + 1] + place * self.widths[level]

    def parent(self, row: int) -> int:
        """Return the row above a row that is not the root."""
        level = self.depths[row]
        place = row - self.level_starts[level]
        return self.level_starts[level - 1] + place // self.widths[level - 1]

    @cached_property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """The rows from the root to each row, both included."""
        paths: list[tuple[int, ...]] = [(0,)]
        for row in range(1, self.rows):
            paths.append((*paths[self.parent(row)], row))
        return tuple(paths)
