"""Checks of single fields. A check takes the field's name and value and returns the value."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from servetwin.workloads.errors import TraceError
from servetwin.workloads.program.package import shipped_json
from servetwin.workloads.rows import RowError

Check = Callable[[str, Any], Any]

MAX_COUNT = 2**31 - 1
MAX_SECONDS = 1e10

# The part of a damaged row that is searched for names of fields.
_SEARCHED_CHARACTERS = 1 << 16
_KEY = re.compile(r'"([^"\\]*)"\s*:')
_EPOCH = datetime.fromtimestamp(0, UTC)
_STAMP = re.compile(r"(?a)(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?")


def integer(minimum: int | None = None) -> Check:
    """Return a check for integers of at least ``minimum``; 1.0, True and "1" are refused."""

    def check(name: str, value: Any) -> int:
        if type(value) is not int:
            raise RowError(name, "not an integer", value)
        if not least <= value <= MAX_COUNT:
            _check_range(name, value, minimum, MAX_COUNT)
        return value

    least = -MAX_COUNT if minimum is None else minimum
    return check


def seconds(name: str, value: Any) -> float:
    """Check a finite time or duration in seconds, at least 0."""
    if type(value) is float and 0.0 <= value <= MAX_SECONDS:
        return value
    if type(value) not in (int, float):
        raise RowError(name, "not a number", value)
    if type(value) is float and not isfinite(value):
        raise RowError(name, "not finite", value)
    _check_range(name, value, 0, MAX_SECONDS)
    return float(value)


def milliseconds(name: str, value: Any) -> float:
    """Check a finite time or duration of at least 0 ms; return it in seconds."""
    return seconds(name, value) / 1000


def nanoseconds(name: str, value: Any) -> float:
    """Check a whole number of nanoseconds, at least 0; return it in seconds."""
    if type(value) is not int:
        raise RowError(name, "not an integer", value)
    _check_range(name, value, 0, 1e9 * MAX_SECONDS)
    return value / 1e9


def text(name: str, value: Any) -> str:
    """Check a string; JSON can hold halves of surrogate pairs, which no UTF-8 file can."""
    if not isinstance(value, str):
        raise RowError(name, "not a string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RowError(name, "has half of a surrogate pair", value) from None
    return value


def boolean(name: str, value: Any) -> bool:
    """Check true or false."""
    if not isinstance(value, bool):
        raise RowError(name, "neither true nor false", value)
    return value


def one_of(*choices: str) -> Check:
    """Return a check for one of a few strings."""

    def check(name: str, value: Any) -> str:
        if value not in choices:
            raise RowError(name, f"must be {' or '.join(choices)}", value)
        return str(value)

    return check


def list_of(kind: type, noun: str) -> Check:
    """Return a check for lists of one kind; integers are from 0 on, such as block ids."""

    def check(name: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or not set(map(type, value)) <= {kind}:
            raise RowError(name, f"not a list of {noun}", value)
        if kind is int and min(value, default=0) < 0:
            raise RowError(name, "negative", min(value))
        return tuple(value)

    return check


integer_list = list_of(int, "integers")
text_list = list_of(str, "strings")
record_list = list_of(dict, "objects")


def counts(name: str, value: Any) -> dict[str, int]:
    """Check a JSON object of non-negative integers."""
    if not isinstance(value, dict):
        raise RowError(name, "not an object", value)
    check = integer(0)
    return {key: check(f"{name}.{key}", count) for key, count in value.items()}


def cell_seconds(name: str, cell: str) -> float:
    """Parse the time or duration in a cell of a CSV row, in seconds."""
    try:
        return seconds(name, float(cell))
    except ValueError:
        raise RowError(name, "not a number", cell) from None


def stamp_ns(name: str, value: Any) -> int:
    """Parse a time stamp into integer nanoseconds since 1970, UTC where no zone is given.

    ``datetime`` alone would drop the seventh digit of the fraction.
    """
    match = _STAMP.fullmatch(text(name, value))
    if not match:
        raise RowError(name, "not a time like 2023-11-16 18:15:46.6805900", value)
    try:
        moment = datetime.fromisoformat(match[1] + (match[3] or "Z"))
    except ValueError:
        raise RowError(name, "no such time", value) from None
    return (moment - _EPOCH) // timedelta(seconds=1) * 10**9 + int((match[2] or "").ljust(9, "0"))


def json_object(row: str) -> dict[str, Any]:
    """Parse the JSON object in a row."""
    try:
        value = json.loads(row)
    except (ValueError, RecursionError):
        raise RowError("row", "not JSON", row) from None
    if not isinstance(value, dict):
        raise RowError("row", "not a JSON object", row)
    return value


def keys(row: str) -> set[str]:
    """Return the keys of the JSON object in a row, or the quoted names of a damaged one."""
    try:
        return set(json_object(row))
    except RowError:
        return set(_KEY.findall(row, 0, _SEARCHED_CHARACTERS))


def checked(
    record: Mapping[str, Any], checks: Mapping[str, Check], required: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the checked values of the fields that a record has and that are not null.

    Raises RowError for the first of ``required`` that is missing or null.
    """
    for name in required:
        if name not in record:
            raise RowError(name, "missing", record)
        if record[name] is None:
            raise RowError(name, "must not be null", None)
    return {
        name: checks[name](name, value)
        for name, value in record.items()
        if value is not None and name in checks
    }


def check_reasoning(record: Mapping[str, Any], name: str) -> None:
    """Raise RowError where an answer has more tokens of reasoning than in all."""
    output, hidden = record["output_tokens"], record.get(name) or 0
    if hidden > output > 0:
        raise RowError(name, f"part of the output, which has {output} tokens", hidden)


# The published formats by name: their columns, or the fields of their records by kind.
FORMATS: dict[str, Any] = shipped_json("workloads/readers/formats.json")
_KINDS: Mapping[str, Check] = {
    "integer": integer(),
    "from -1": integer(-1),
    "count": integer(0),
    "positive": integer(1),
    "counts": counts,
    "integers": integer_list,
    "seconds": seconds,
    "milliseconds": milliseconds,
    "nanoseconds": nanoseconds,
    "boolean": boolean,
    "text": text,
    "texts": text_list,
    "objects": record_list,
}


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """The fields of the records of a format; all of one of its ``marks`` are in each of them."""

    checks: Mapping[str, Check]
    required: Sequence[str]
    marks: Sequence[Sequence[str]]

    @classmethod
    def of(cls, name: str) -> "RecordFormat":
        """Return the format of a name in ``FORMATS``."""
        entry = FORMATS[name]
        checks = {field: _KINDS[kind] for kind, names in entry["fields"].items() for field in names}
        checks |= {field: one_of(*texts) for field, texts in entry.get("choices", {}).items()}
        return cls(checks, entry.get("required", ()), entry.get("marks", ()))

    def recognises(self, row: str) -> bool:
        """Return whether the first row of a file has this format."""
        found = keys(row) if row.startswith("{") else set()
        return any(found.issuperset(mark) for mark in self.marks)

    def checked(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the checked values of a record, as the function ``checked`` does."""
        return checked(record, self.checks, self.required)


def _check_range(name: str, value: float, minimum: int | None, maximum: float) -> None:
    if minimum is not None and value < minimum:
        reason = "negative" if value < 0 else f"must be at least {minimum}"
        raise RowError(name, reason, value)
    if abs(value) > maximum:
        raise RowError(name, f"beyond {maximum:.10g}", value)


_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OF_THE_SENDER = ("accept-encoding", "connection", "content-length", "content-type", "host")
_FORM = "write COLUMN=HEADER,..., such as tenant=X-Tenant"


def parse_header_columns(text: str) -> dict[str, str]:
    """Read ``COLUMN=HEADER,...`` into headers by column; a column alone is its own header.

    Raises ``TraceError`` naming the part that is wrong.
    """
    columns: dict[str, str] = {}
    for part in text.split(","):
        column, equals, header = (word.strip() for word in part.partition("="))
        header = header if equals else column
        if not column or column in columns:
            wrong = f"{column!r} twice" if column else "a column without a name"
            raise TraceError(f"--header-columns {text!r}: {wrong}; {_FORM}")
        if not _NAME.fullmatch(header):
            raise TraceError(f"--header-columns {text!r}: {header!r} is no header; {_FORM}")
        if header.lower() in (*_OF_THE_SENDER, *map(str.lower, columns.values())):
            raise TraceError(
                f"--header-columns {text!r}: {header} is set by the load tester, or set twice"
            )
        columns[column] = header
    return columns


def request_headers(record: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, str] | None:
    """Return the headers of a record; None without columns. Raises ``RowError``, without values."""
    if not columns:
        return None
    return {header: _value(record, column) for column, header in columns.items()}


def without_headers(record: Mapping[str, Any], columns: Mapping[str, str]) -> Mapping[str, Any]:
    """Return a record without the columns of headers, which no message may repeat."""
    if not columns:
        return record
    return {name: value for name, value in record.items() if name not in columns}


def _value(record: Mapping[str, Any], column: str) -> str:
    """Return the value of a header; it may be a secret, so no message repeats it."""
    if record.get(column) is None:
        raise RowError(column, "missing; --header-columns wants it", None)
    value = record[column]
    text = str(value) if type(value) is int else value
    if not isinstance(text, str) or not (text.strip() and text.isascii() and text.isprintable()):
        raise RowError(column, "no value of a header: wants one line of ASCII", None)
    return text.strip()
