"""A table of requests: a CSV file with any delimiter, JSON Lines or a JSON array, row by row.

Every cell is a text without the spaces around it. Keys of nested JSON objects are joined by dots.
"""

import csv
import json
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from servetwin.workloads.fields import json_object
from servetwin.workloads.rows import RowError, Rows, utf8
from servetwin.workloads.tables.cells import has_decimal_comma

DELIMITERS = (",", ";", "\t", "|")
SAMPLED_ROWS = 1_000
"""Rows by which columns are recognised."""
_LONGEST_CELL = 1 << 26

Cells = dict[str, str]
NumberedCells = tuple[int, Cells | RowError]
"""The line of a row, and its cells or what is wrong with it."""


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

    def numbered(self) -> Iterator[NumberedCells]:
        """Yield all rows, those of the sample included."""
        return self._numbered

    def column(self, name: str) -> list[str]:
        """Return the cells of a column in the sample."""
        return [cells.get(name, "") for cells in self.sample]

    def _header(self, header: str) -> list[str]:
        names = split_cells(header, self.delimiter)
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
            if len(cells) == len(self.names):
                try:
                    yield line, {n: utf8(c.strip()) for n, c in zip(self.names, cells, strict=True)}
                except RowError as error:
                    yield line, error
                continue
            reason = f"the row has {len(cells)} cells where the header has {len(self.names)}"
            text = self.delimiter.join(cells)
            yield (
                line,
                RowError([*self.names, "row"][min(len(cells), len(self.names))], reason, text),
            )


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


def csv_cells(rows: Rows, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
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
    found: Cells = {}
    for key, value in record.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{before}{key}.")
        else:
            found[before + key] = _cell(value)
    return found


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    return "" if value is None else json.dumps(value)


def _rows_of(head: Iterable[NumberedCells]) -> list[Cells]:
    return [cells for _, cells in head if not isinstance(cells, RowError)]


def _is_value(name: str) -> bool:
    return name[0].isdigit() or (name[0] in "+-." and name[1:2].isdigit())
