"""The columns of a table by what they hold, as ``arrival_s=ts,prompt_tokens=in,...``.

A mapping that has all that is needed is taken as it is. What it leaves out of that is recognised.
"""

import csv
from collections.abc import Iterable, Mapping
from io import StringIO

from servetwin.workloads.errors import TraceError, require_name
from servetwin.workloads.program.key_values import key_value

# Seconds of each unit of time.
UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
# Day or month first, as in 20/11/2026 09:00:00 and 11/20/2026 09:00:00.
DATE_ORDERS = ("dmy", "mdy")


STAMPS = ("arrival", "first_token", "last_token")
DURATIONS = ("ttft", "e2e", "queue")
COUNTS = ("prompt_tokens", "output_tokens", "cached_tokens", "prefix_tokens")
TEXTS = ("prompt", "answer", "request_id", "session_id", "parent_ids", "prefix_id", "status",
         "error", "model", "tenant")  # fmt: skip
# Measured times, from which step times can be fitted.
MEASURED = ("ttft", "e2e", "first_token", "last_token")

# One of each: when a request came, how long its prompt is, and how long its answer.
NEEDED = (("arrival",), ("prompt_tokens", "prompt"), ("output_tokens", "answer"))
# The words for what is needed, by its first quantity.
WORDS: Mapping[str, str] = {
    "arrival": "the arrival",
    "prompt_tokens": "the tokens or the text of the prompt",
    "output_tokens": "the tokens or the text of the answer",
}

# Every key of a mapping.
KNOWN = (
    *COUNTS,
    *TEXTS,
    *STAMPS,
    *(f"{name}_{unit}" for name in STAMPS for unit in (*UNITS_S, *DATE_ORDERS)),
    *(f"{name}_{unit}" for name in DURATIONS for unit in UNITS_S),
)


def quantity_of(key: str) -> str:
    """Return the quantity of a key of a mapping, without the form of its values."""
    return key.removesuffix(f"_{form_of(key)}") if form_of(key) else key


def form_of(key: str) -> str:
    """Return the unit or the order of dates that a key of a mapping names; empty without one."""
    name, _, form = key.rpartition("_")
    timed = (name in STAMPS and form in (*UNITS_S, *DATE_ORDERS)) or (
        name in DURATIONS and form in UNITS_S
    )
    return form if timed else ""


# The column of each key of ``KNOWN``.
Columns = Mapping[str, str]
OPTION = "--map"
FORM = "QUANTITY=COLUMN"


def parse_mapping(text: str, where: str = OPTION) -> dict[str, str]:
    """Return the column of each quantity; one whose name has a comma is in double quotes.

    Raises ``TraceError`` for an unknown quantity, and for one or a column that is given twice.
    """
    columns: dict[str, str] = {}
    for part in _parts(text, where):
        key, column = key_value(part, where, TraceError, FORM)
        require_name(key, KNOWN, f"{where}: unknown quantity", TraceError)
        if not column:
            raise TraceError(f"{where}: {key} names no column; write {key}=COLUMN")
        if quantity_of(key) in map(quantity_of, columns):
            raise TraceError(f"{where}: {quantity_of(key)} is given twice; give it once")
        if column in columns.values():
            raise TraceError(f"{where}: the column {column!r} is given twice; give it once")
        columns[key] = column
    if not columns:
        raise TraceError(f"{where}: empty; write {FORM},...")
    return columns


def mapping_text(columns: Columns) -> str:
    """Return the text that ``parse_mapping`` reads."""
    line = StringIO()
    csv.writer(line, lineterminator="").writerow([f"{key}={name}" for key, name in columns.items()])
    return line.getvalue()


def missing_of(columns: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the needed quantities that the keys of a mapping lack."""
    given = {quantity_of(key) for key in columns}
    return [names for names in NEEDED if given.isdisjoint(names)]


def _parts(text: str, where: str) -> list[str]:
    if len(text.strip().splitlines()) > 1:
        raise TraceError(f"{where}: {text.strip()!r} has several lines; write {FORM},... in one")
    try:
        rows = list(csv.reader([text.strip()], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise TraceError(f"{where}: {text!r} is not {FORM},... ({error})") from None
    return [part for part in (rows[0] if rows else []) if part.strip()]
