"""What the cells of a column look like, in a sample of rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from servetwin.workloads.rows import RowError
from servetwin.workloads.tables.cells import cell_count, is_missing, plain_number, status_of
from servetwin.workloads.tables.moments import date_orders, epoch_unit, is_iso

_FEWEST_OF_A_COUNTER = 3


@dataclass(frozen=True)
class Content:
    """The cells of one column that have a value; ``comma`` as in ``Table``.

    A column is of a kind where more than half of its cells are: the others are bad rows.
    """

    cells: Sequence[str]
    comma: bool

    @classmethod
    def of(cls, cells: Sequence[str], comma: bool) -> "Content":
        """Return the content of a column."""
        return cls([cell for cell in cells if not is_missing(cell)], comma)

    @cached_property
    def counts(self) -> list[int]:
        """The cells that are whole numbers from 0 on."""
        found = []
        for cell in self.cells:
            try:
                found.append(cell_count("", cell, 0))
            except RowError:
                continue
        return found

    @cached_property
    def numbers(self) -> list[float]:
        """The cells that are numbers."""
        found = []
        for cell in self.cells:
            try:
                found.append(float(plain_number("", cell, self.comma)))
            except RowError:
                continue
        return found

    @property
    def are_counts(self) -> bool:
        """Whether these may be counts of tokens: no running number, and no codes of HTTP."""
        return self.are_whole and not (self._is_counter or self.are_codes)

    @property
    def are_whole(self) -> bool:
        """Whether these are whole numbers from 0 on."""
        return self._most(len(self.counts))

    @property
    def are_numbers(self) -> bool:
        """Whether these are numbers, and no stamps since 1970."""
        return self._most(len(self.numbers)) and self.epoch is None

    @property
    def are_texts(self) -> bool:
        """Whether these are words rather than numbers or stamps."""
        return bool(self.cells) and not (self._most(len(self.numbers)) or self.are_stamps)

    @property
    def are_stamps(self) -> bool:
        """Whether these name a moment by themselves, if perhaps not the order of day and month."""
        return self.is_iso or self.is_dated or self.epoch is not None

    @cached_property
    def is_iso(self) -> bool:
        """Whether these are stamps that begin with the year."""
        return self._most(sum(map(is_iso, self.cells)))

    @cached_property
    def is_dated(self) -> bool:
        """Whether these are stamps that begin with the day or the month."""
        return self._most(sum(bool(date_orders(cell)) for cell in self.cells))

    @cached_property
    def orders(self) -> tuple[str, ...]:
        """The orders in which all dates can be read."""
        found = [set(orders) for cell in self.cells if (orders := date_orders(cell))]
        common = set.intersection(*found) if found else set()
        return tuple(sorted(common))

    @cached_property
    def epoch(self) -> str | None:
        """The unit of numbers that all count since 1970."""
        units = {epoch_unit(cell) for cell in self.cells}
        return units.pop() if len(units) == 1 else None

    @property
    def unclear_states(self) -> list[str]:
        """Cells that say neither that a request was answered nor that it failed."""
        return [cell for cell in dict.fromkeys(self.cells) if status_of(cell) is None]

    def _most(self, count: int) -> bool:
        return count > len(self.cells) / 2

    @property
    def _is_counter(self) -> bool:
        counts = self.counts
        return len(counts) >= _FEWEST_OF_A_COUNTER and all(b == a + 1 for a, b in pairwise(counts))

    @property
    def are_codes(self) -> bool:
        """Whether these are codes of HTTP, with successes among them."""
        return 200 in self.counts and all(status_of(cell) is not None for cell in self.cells)
