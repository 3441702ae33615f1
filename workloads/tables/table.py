"""A table of requests: a CSV file with any delimiter, JSON Lines or a JSON array, row by row.

Every cell is a text without the spaces around it. Keys of nested JSON objects are joined by dots.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple

from servetwin.workloads.fields import json_object
from servetwin.workloads.rows import Row, RowError, Rows, utf8, wrong_width
from servetwin.workloads.tables import mapping
from servetwin.workloads.tables.moments import (
    Moments,
    cell_count,
    cell_duration_s,
    error_of,
    has_decimal_comma,
    is_missing,
    status_of,
)

DELIMITERS = (",", ";", "\t", "|")
SAMPLED_ROWS = 1_000
# Rows by which columns are recognised.
MOST_COLUMNS = 1_000
_LONGEST_CELL = 1 << 26

Cells = dict[str, str]
# The line of a row, and its cells or what is wrong with it.
NumberedCells = tuple[int, Cells | RowError]


class Table:
    """Takes the header of a file; raises ``TraceError`` where it is none.

    ``sample`` are the first rows. ``comma`` says that numbers have decimal commas.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.line, first = rows.peek()
        if rows.is_array or first.startswith("{"):
            numbered, self.delimiter = _json_rows(rows), ""
            head = list(islice(numbered, SAMPLED_ROWS))
            self.names = [*dict.fromkeys(chain.from_iterable(_rows_of(head)))]
        else:
            self.line, header = rows.take()
            self.delimiter = delimiter_of(header)
            self.names = self._header(header)
            numbered = self._csv_rows()
            head = list(islice(numbered, SAMPLED_ROWS))
        self._numbered = chain(head, numbered)
        self.sample = _rows_of(head)
        self.comma = self.delimiter not in ("", ",") and any(
            has_decimal_comma(cell) for cells in self.sample for cell in cells.values()
        )

    def parsed(self, parse: Callable[[int, Cells], Row]) -> list[Row]:
        """Parse the cells of every row, those of the sample included; put bad ones aside."""

        def parse_row(line: int, cells: Cells | RowError) -> Row:
            if isinstance(cells, RowError):
                raise cells
            return parse(line, cells)

        return self._rows.parsed(self._numbered, parse_row)

    def column(self, name: str) -> list[str]:
        """Return the cells of a column in the sample."""
        return [cells.get(name, "") for cells in self.sample]

    def _header(self, header: str) -> list[str]:
        names = split_cells(header, self.delimiter)
        if len(names) > MOST_COLUMNS:
            reason = f"{len(names):,} columns; a table of requests has at most {MOST_COLUMNS:,}"
            raise self._rows.failure(self.line, RowError("row", reason, header))
        named = [name for name in names if name]
        for name in named:
            if named.count(name) > 1:
                places = [str(at) for at, other in enumerate(names, 1) if other == name]
                reason = f"columns {' and '.join(places)} have this name; rename one"
                raise self._rows.failure(self.line, RowError(name, reason, header))
        if named and all(_is_value(name) for name in named):
            wanted = "values where the names of the columns belong; put a line of names before it"
            raise self._rows.failure(self.line, RowError("row", wanted, header))
        return names

    def _csv_rows(self) -> Iterator[NumberedCells]:
        for line, cells in csv_cells(self._rows, self.delimiter):
            if not any(map(str.strip, cells)):
                continue
            if len(cells) != len(self.names):
                text = self.delimiter.join(cells)
                secret = bool(self._rows.header_columns)
                yield line, wrong_width(self.names, cells, "headers, not shown" if secret else text)
                continue
            try:
                yield line, {n: utf8(c.strip()) for n, c in zip(self.names, cells, strict=True)}
            except RowError as error:
                yield line, error


def delimiter_of(header: str) -> str:
    """Return the delimiter of a header: the most frequent outside of quotes."""
    outside = "".join(header.split('"')[::2])
    return max(DELIMITERS, key=outside.count)


def split_cells(row: str, delimiter: str) -> list[str]:
    """Return the cells of a row, without the spaces around them."""
    try:
        return [cell.strip() for cell in next(csv.reader([row], delimiter=delimiter))]
    except csv.Error:
        return [cell.strip() for cell in row.split(delimiter)]


def csv_cells(rows: Rows, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each record and the line on which it begins.

    Cells may be quoted, and then hold delimiters, quotes and line ends.
    """
    before_limit = csv.field_size_limit(_LONGEST_CELL)
    began = last = 0

    def texts() -> Iterator[str]:
        nonlocal began, last
        for last, text in rows.lines():
            began = began or last
            yield text

    try:
        for cells in csv.reader(texts(), delimiter=delimiter, strict=True):
            if cells:
                yield began, cells
            began = 0
    except csv.Error as error:
        raise rows.failure(began or last, RowError("row", f"not CSV: {error}", "")) from None
    finally:
        csv.field_size_limit(before_limit)


def json_names(row: str) -> list[str]:
    """Return the names of the columns of a JSON object; none where it is damaged."""
    try:
        return list(_flat(json_object(row)))
    except RowError:
        return []


def _json_rows(rows: Rows) -> Iterator[NumberedCells]:
    for line, text in rows.texts():
        try:
            yield line, _flat(json_object(utf8(text)))
        except RowError as error:
            yield line, error


def _flat(record: dict[str, Any], before: str = "") -> Cells:
    cells: Cells = {}
    for key, value in record.items():
        if isinstance(value, dict):
            cells |= _flat(value, f"{before}{key}.")
        else:
            cells[before + key] = _cell(value)
    return cells


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    return "" if value is None else json.dumps(value)


def _rows_of(head: Iterable[NumberedCells]) -> list[Cells]:
    return [cells for _, cells in head if not isinstance(cells, RowError)]


def _is_value(name: str) -> bool:
    return name[0].isdigit() or (name[0] in "+-." and name[1:2].isdigit())


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
        by_quantity = {
            mapping.quantity_of(key): (mapping.form_of(key), name) for key, name in columns.items()
        }
        self._comma = comma
        self._stamps = {
            quantity: (name, Moments(name, quantity, form, comma))
            for quantity, (form, name) in by_quantity.items()
            if quantity in mapping.STAMPS
        }
        self._durations = {
            quantity: (name, mapping.UNITS_S[form or "s"])
            for quantity, (form, name) in by_quantity.items()
            if quantity in mapping.DURATIONS
        }
        self._counts = {q: name for q, (_, name) in by_quantity.items() if q in mapping.COUNTS}
        self._texts = {q: name for q, (_, name) in by_quantity.items() if q in mapping.TEXTS}

    def parse(self, line: int, cells: Cells) -> TableRow:
        """Return a row of its cells. Raises ``RowError``."""
        name, moments = self._stamps["arrival"]
        arrival_ns = moments.ns(cells.get(name, ""))
        if arrival_ns is None:
            raise RowError(name, "missing: when did this request arrive?", cells.get(name, ""))
        failure = self._failure(cells)
        texts = {
            q: cell for q, n in self._texts.items() if not is_missing(cell := cells.get(n, ""))
        }
        counts = {q: self._count(q, cells, failure is None) for q in self._counts}
        if failure is not None:
            return TableRow(line, arrival_ns, counts, texts, failure)
        says_nothing = "output_tokens" not in counts and "answer" not in texts
        if says_nothing or counts.get("output_tokens") == 0:
            return TableRow(line, arrival_ns, counts, texts, NO_OUTPUT)
        if "prompt_tokens" not in counts and "prompt" not in texts:
            raise RowError(self._texts["prompt"], "missing: the prompt has no text", "")
        ttft_s, e2e_s, queue_s = (self._duration_s(q, cells) for q in mapping.DURATIONS)
        first_s, last_s = (
            self._after(q, cells, arrival_ns) if q in self._stamps else None
            for q in ("first_token", "last_token")
        )
        ttft_s, e2e_s = _first(ttft_s, first_s), _first(e2e_s, last_s)
        if ttft_s is not None and e2e_s is not None and e2e_s < ttft_s:
            where = self._durations.get("ttft") or self._stamps["first_token"]
            raise RowError(where[0], "the first token comes after the last one", ttft_s)
        return TableRow(line, arrival_ns, counts, texts, None, ttft_s, e2e_s, queue_s)

    def _failure(self, cells: Cells) -> str | None:
        if "error" in self._texts and (error := error_of(cells.get(self._texts["error"], ""))):
            return error
        if "status" not in self._texts:
            return None
        name = self._texts["status"]
        cell = cells.get(name, "")
        worked = status_of(cell)
        if worked is None:
            reason = "missing" if is_missing(cell) else "unclear whether that is a failure"
            raise RowError(name, reason, cell)
        return None if worked else cell

    def _count(self, quantity: str, cells: Cells, answered: bool) -> int | None:
        """Return a count; a request without an answer may lack any."""
        name = self._counts[quantity]
        cell = cells.get(name, "")
        is_needed = answered and quantity in ("prompt_tokens", "output_tokens")
        if not is_needed and is_missing(cell):
            return None
        return cell_count(name, cell, 1 if is_needed and quantity == "prompt_tokens" else 0)

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
