"""A row of a table: what was asked, whether it was answered, and what was measured."""

from collections.abc import Mapping
from typing import NamedTuple

from servetwin.workloads.rows import RowError
from servetwin.workloads.tables.cells import (
    cell_count,
    cell_duration_s,
    error_of,
    is_missing,
    status_of,
)
from servetwin.workloads.tables.moments import Moments
from servetwin.workloads.tables.quantities import (
    ANSWER,
    ARRIVAL,
    COUNTS,
    DURATIONS,
    ERROR,
    FIRST_TOKEN,
    LAST_TOKEN,
    MEASURED,
    OUTPUT_TOKENS,
    PROMPT,
    PROMPT_TOKENS,
    STAMPS,
    STATUS,
    TEXTS,
    UNITS_S,
    form_of,
    quantity_of,
)
from servetwin.workloads.tables.table import Cells

NO_OUTPUT = "no output"


class TableRow(NamedTuple):
    """A row as it stands; ``failure`` says why a request has no answer.

    Times are in seconds after the arrival. Counts are None where a text stands for them.
    """

    line: int
    arrival_ns: int
    counts: Mapping[str, int | None]
    texts: Mapping[str, str]
    failure: str | None
    ttft_s: float | None = None
    e2e_s: float | None = None
    queue_s: float | None = None

    @property
    def is_measured(self) -> bool:
        """Whether the server's time for this request is known."""
        return self.failure is None and (self.ttft_s is not None or self.e2e_s is not None)


class RowParser:
    """Parses rows by a mapping; ``comma`` as in ``Table``."""

    def __init__(self, columns: Mapping[str, str], comma: bool) -> None:
        by_quantity = {quantity_of(key): (form_of(key), name) for key, name in columns.items()}
        self._comma = comma
        self._stamps = {
            quantity: (name, Moments(name, quantity, form, comma))
            for quantity, (form, name) in by_quantity.items()
            if quantity in STAMPS
        }
        self._durations = {
            quantity: (name, UNITS_S[form or "s"])
            for quantity, (form, name) in by_quantity.items()
            if quantity in DURATIONS
        }
        self._counts = {q: name for q, (_, name) in by_quantity.items() if q in COUNTS}
        self._texts = {q: name for q, (_, name) in by_quantity.items() if q in TEXTS}
        self.is_measured = any(quantity in MEASURED for quantity in by_quantity)

    def parse(self, line: int, cells: Cells) -> TableRow:
        """Return a row of its cells. Raises ``RowError``."""
        name, moments = self._stamps[ARRIVAL]
        arrival_ns = moments.ns(cells.get(name, ""))
        if arrival_ns is None:
            raise RowError(name, "missing: when did this request arrive?", cells.get(name, ""))
        failure = self._failure(cells)
        texts = {
            q: cell for q, n in self._texts.items() if not is_missing(cell := cells.get(n, ""))
        }
        if failure is not None:
            return TableRow(line, arrival_ns, self._known_counts(cells), texts, failure)
        counts = {q: self._count(q, cells) for q in self._counts}
        if counts.get(OUTPUT_TOKENS) == 0 or self._says_nothing(counts, texts):
            return TableRow(line, arrival_ns, counts, texts, NO_OUTPUT)
        self._require_prompt(counts, texts)
        ttft_s, e2e_s, queue_s = (self._duration_s(q, cells) for q in DURATIONS)
        first_s, last_s = (
            self._after(q, cells, arrival_ns) if q in self._stamps else None
            for q in (FIRST_TOKEN, LAST_TOKEN)
        )
        ttft_s, e2e_s = _first(ttft_s, first_s), _first(e2e_s, last_s)
        if ttft_s is not None and e2e_s is not None and e2e_s < ttft_s:
            where = self._durations.get("ttft") or self._stamps[FIRST_TOKEN]
            raise RowError(where[0], "the first token comes after the last one", ttft_s)
        return TableRow(line, arrival_ns, counts, texts, None, ttft_s, e2e_s, queue_s)

    def _failure(self, cells: Cells) -> str | None:
        if ERROR in self._texts and (error := error_of(cells.get(self._texts[ERROR], ""))):
            return error
        if STATUS not in self._texts:
            return None
        name = self._texts[STATUS]
        cell = cells.get(name, "")
        worked = status_of(cell)
        if worked is None:
            reason = "missing" if is_missing(cell) else "unclear whether that is a failure"
            raise RowError(name, reason, cell)
        return None if worked else cell

    def _count(self, quantity: str, cells: Cells) -> int | None:
        name = self._counts[quantity]
        cell = cells.get(name, "")
        if quantity not in (PROMPT_TOKENS, OUTPUT_TOKENS) and is_missing(cell):
            return None
        return cell_count(name, cell, 1 if quantity == PROMPT_TOKENS else 0)

    def _known_counts(self, cells: Cells) -> dict[str, int | None]:
        """Return what a failed request has of its counts."""
        found: dict[str, int | None] = {}
        for quantity, name in self._counts.items():
            cell = cells.get(name, "")
            found[quantity] = None if is_missing(cell) else cell_count(name, cell, 0)
        return found

    def _says_nothing(self, counts: Mapping[str, int | None], texts: Mapping[str, str]) -> bool:
        return OUTPUT_TOKENS not in counts and ANSWER not in texts

    def _require_prompt(self, counts: Mapping[str, int | None], texts: Mapping[str, str]) -> None:
        if PROMPT_TOKENS not in counts and PROMPT not in texts:
            raise RowError(self._texts[PROMPT], "missing: the prompt has no text", "")

    def _duration_s(self, quantity: str, cells: Cells) -> float | None:
        if quantity not in self._durations:
            return None
        name, unit_s = self._durations[quantity]
        return cell_duration_s(name, cells.get(name, ""), unit_s, self._comma)

    def _after(self, quantity: str, cells: Cells, arrival_ns: int) -> float | None:
        """Return how long after the arrival a stamp is. Raises ``RowError`` where it is before."""
        name, moments = self._stamps[quantity]
        stamp_ns = moments.ns(cells.get(name, ""))
        if stamp_ns is None:
            return None
        if stamp_ns < arrival_ns:
            reason = f"{(arrival_ns - stamp_ns) / 1e9:g} s before the arrival"
            raise RowError(name, reason, cells[name])
        return (stamp_ns - arrival_ns) / 1e9


def _first(one: float | None, other: float | None) -> float | None:
    return other if one is None else one
