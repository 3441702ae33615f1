"""The rows of a trace file, and the bad ones among them."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import TextIOBase
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from servetwin.workloads.errors import TraceError

CHUNK_CHARACTERS = 1 << 20
# Characters of an element; what is longer, or no JSON, ends the array.
LONGEST_ELEMENT = 1 << 25
_BETWEEN = " \t\r\n,"
_DECODER = json.JSONDecoder()

# A row and the line on which it begins, counted from 1.
NumberedRow = tuple[int, str]


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """How many rows a file may have, and how long reading them may take."""

    rows: int
    seconds: float

    def checked(self, path: Path, numbered: Iterable[NumberedRow]) -> Iterator[NumberedRow]:
        """Yield the rows; raise ``TraceError`` with the limit as soon as they exceed it."""
        until_s = time.monotonic() + self.seconds
        for count, row in enumerate(numbered, 1):
            if count > self.rows:
                raise TraceError(f"{path}: more than {self.rows:,} rows; take a part of it")
            if time.monotonic() > until_s:
                raise TraceError(
                    f"{path}: {count - 1:,} rows took more than {self.seconds:g} s; "
                    "take a part of it"
                )
            yield row


def numbered_rows(lines: Iterable[str]) -> tuple[bool, Iterator[NumberedRow]]:
    """Return whether a file is a JSON array, and its elements or else its lines."""
    if not isinstance(lines, TextIOBase):
        return False, enumerate(lines, 1)
    blank = 0
    while (start := lines.read(1)) and start.isspace():
        blank += start == "\n"
    if start == "[":
        return True, _elements(lines, blank + 1)
    rest = chain([start + next(iter(lines), "")] if start else [], lines)
    return False, enumerate(rest, blank + 1)


def _elements(lines: TextIOBase, line: int) -> Iterator[NumberedRow]:
    """Yield the elements after the opening bracket; what is no JSON is the last of them."""
    text, at, size = "", 0, CHUNK_CHARACTERS
    while True:
        begin = at
        while at < len(text) and text[at] in _BETWEEN:
            at += 1
        line += text.count("\n", begin, at)
        try:
            end = _DECODER.raw_decode(text, at)[1] if at < len(text) else at
        except (ValueError, RecursionError):
            end = at
        if end > at and end < len(text):  # a number may go on behind the text that is here
            yield line, text[at:end]
            line += text.count("\n", at, end)
            at, size = end, CHUNK_CHARACTERS
        elif more := lines.read(min(size, LONGEST_ELEMENT - (len(text) - at))):
            text, at, size = text[at:] + more, 0, 2 * size
        else:
            break
    if (rest := text[at:].strip()) != "]":
        yield line, rest or "[ without ]"


_SHOWN_CHARACTERS = 60

Row = TypeVar("Row")
Raw = TypeVar("Raw")


class RowError(Exception):
    """What is wrong with one field of one row; ``field`` is ``row`` where it is the whole row."""

    def __init__(self, field: str, reason: str, value: object) -> None:
        super().__init__(f"field '{field}': {reason} ({_shown(value)})")
        self.field, self.reason, self.value = field, reason, value

    def inside(self, place: str) -> "RowError":
        """Return the same error for a record that is itself the field ``place``."""
        field = place if self.field == "row" else f"{place}.{self.field}"
        return RowError(field, self.reason, self.value)


def wrong_width(names: Sequence[str], cells: Sequence[str], text: str) -> RowError:
    """Return the error of a row with more or fewer cells than the header has names."""
    reason = f"the row has {len(cells)} cells where the header has {len(names)}"
    return RowError([*names, "row"][min(len(cells), len(names))], reason, text)


class BadRows:
    """The bad rows of one reading, put aside; there may be up to ``allowed``."""

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self._aside: list[tuple[Path, int, str]] = []

    def add(self, path: Path, line: int, message: str) -> None:
        """Put one aside; raises TraceError, listing all, when there are too many."""
        self._aside.append((path, line, message))
        if len(self._aside) > self._allowed:
            raise TraceError("\n".join(self._messages()))

    @property
    def notes(self) -> tuple[str, ...]:
        """How many rows were put aside, then one note for each."""
        if not self._aside:
            return ()
        return (f"{counted(len(self._aside), 'bad row')} skipped", *self._messages())

    def _messages(self) -> list[str]:
        return [message for _, _, message in sorted(self._aside, key=lambda row: row[:2])]


class Rows:
    """The numbered, non-blank rows of a file; bad ones go to ``bad``.

    Lines are counted from 1 in the decompressed file. The elements of a JSON array are rows too
    (``is_array``). ``header_columns`` are the columns that hold HTTP headers, by the names of these
    (``workloads.fields``); the readers of prompts, of tables and of our own traces know
    them. ``columns`` are what the columns of a table hold (``workloads.tables``).
    """

    def __init__(
        self,
        path: Path,
        lines: Iterable[str],
        bad: BadRows,
        header_columns: Mapping[str, str] | None = None,
        limits: ReadingLimits | None = None,
        most_rows: int | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        self.path = path
        self.columns = columns
        # Whether ``parse`` has left rows behind ``most_rows`` right ones.
        self.stopped = False
        self._most_rows = most_rows
        self.source = path.name.split(".")[0] or path.name
        self.header_columns = header_columns or {}
        self._bad = bad
        self.is_array, self._numbered = numbered_rows(lines)
        if limits:
            self._numbered = limits.checked(path, self._numbered)
        numbered = ((line, text.strip()) for line, text in self._numbered)
        self._rows: Iterator[tuple[int, str]] = (row for row in numbered if row[1])

    def peek(self) -> tuple[int, str]:
        """Return the next row and its line number without taking it; TraceError where there is
        none.
        """
        try:
            line, text = self.take()
        except StopIteration:
            raise TraceError(f"{self.path}:1: empty, a trace has at least one row") from None
        self._rows = chain([(line, text)], self._rows)
        return line, text

    def take(self) -> tuple[int, str]:
        """Return the next row and its line number."""
        line, text = next(self._rows)
        try:
            return line, utf8(text)
        except RowError as error:
            raise self.failure(line, error) from None

    def parse(self, parse_row: Callable[[int, str], Row]) -> list[Row]:
        """Parse every row by ``parse_row(line, text)``; skip rows for which it raises RowError.

        Stop where there are as many as the caller of the reader wants.
        """
        return self.parsed(self._rows, lambda line, text: parse_row(line, utf8(text)))

    def parsed(
        self, numbered: Iterable[tuple[int, Raw]], parse_row: Callable[[int, Raw], Row]
    ) -> list[Row]:
        """Do as ``parse`` with rows that have been split already."""
        parsed: list[Row] = []
        for line, raw in numbered:
            if len(parsed) == self._most_rows:
                self.stopped = True
                break
            try:
                parsed.append(parse_row(line, raw))
            except RowError as error:
                self.reject(line, error)
        return parsed

    def parts(self, most: int) -> Iterator[list[NumberedRow]]:
        """Yield the rows that are left, up to so many at a time; those before an error too."""
        part: list[NumberedRow] = []
        try:
            for row in self._rows:
                part.append(row)
                if len(part) == most:
                    yield part
                    part = []
        except Exception:
            yield part
            raise
        yield part

    def texts(self) -> Iterator[tuple[int, str]]:
        """Return the rows that are left."""
        return self._rows

    def lines(self) -> Iterator[tuple[int, str]]:
        """Return the lines that are left as they are in the file, blank ones included."""
        return self._numbered

    def whole(self) -> tuple[int, str]:
        """Return all rows as one text, for a file that is one record, and the line it starts at."""
        line, first = self.take()
        try:
            return line, "\n".join([first, *(utf8(text) for _, text in self._rows)])
        except RowError as error:
            raise self.failure(line, error) from None

    def reject(self, line: int, error: RowError) -> None:
        """Put a bad row aside; raises TraceError, listing all, when there are too many."""
        self._bad.add(self.path, line, str(self.failure(line, error)))

    def failure(self, line: int, error: RowError) -> TraceError:
        """Return the error for what cannot be skipped, such as a header."""
        return TraceError(f"{self.path}:{line}: {error}")


def counted(count: float, noun: str) -> str:
    """Return ``1 row`` or ``1,024 rows``, to four digits where it is no whole number."""
    number = f"{count:,.0f}" if count >= 1000 or count == int(count) else f"{count:.4g}"
    return f"{number} {noun}{'' if number == '1' else 's'}"


def utf8(text: str) -> str:
    """Return a text without change. Raises ``RowError`` where its bytes were not UTF-8."""
    if not text.isascii() and any("\udc80" <= character <= "\udcff" for character in text):
        raise RowError("row", "not UTF-8; save it as UTF-8 (Excel: CSV UTF-8)", text)
    return text


def _shown(value: Any) -> str:
    """Format the value as JSON, so that an error stays on one line."""
    # Of a long text no more than is shown: a damaged row may have millions of characters.
    # A Parquet file has values that JSON has not.
    text = json.dumps(value[:_SHOWN_CHARACTERS] if isinstance(value, str) else value, default=str)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."
