"""HTTP headers of single requests, from columns or fields of a trace."""

import re
from collections.abc import Mapping
from typing import Any

from servetwin.workloads.errors import TraceError
from servetwin.workloads.rows import RowError

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
