"""The columns of a table by what they hold, as ``arrival_s=ts,prompt_tokens=in,...``.

A mapping that has all that is needed is taken as it is. What it leaves out of that is recognised.
"""

import csv
from collections.abc import Iterable, Mapping
from io import StringIO

from servetwin.workloads.errors import TraceError, did_you_mean
from servetwin.workloads.key_values import key_value
from servetwin.workloads.tables.quantities import KNOWN, NEEDED, quantity_of

Columns = Mapping[str, str]
"""The column of each key of ``KNOWN``."""
OPTION = "--map"
FORM = "QUANTITY=COLUMN"


def parse_mapping(text: str, where: str = OPTION) -> dict[str, str]:
    """Return the column of each quantity; one whose name has a comma is in double quotes.

    Raises ``TraceError`` for an unknown quantity, and for one or a column that is given twice.
    """
    found: dict[str, str] = {}
    for part in _parts(text, where):
        key, column = key_value(part, where, TraceError, FORM)
        if key not in KNOWN:
            raise TraceError(f"{where}: unknown quantity {key!r}; {did_you_mean(key, KNOWN)}")
        if not column:
            raise TraceError(f"{where}: {key} names no column; write {key}=COLUMN")
        if quantity_of(key) in map(quantity_of, found):
            raise TraceError(f"{where}: {quantity_of(key)} is given twice; give it once")
        if column in found.values():
            raise TraceError(f"{where}: the column {column!r} is given twice; give it once")
        found[key] = column
    if not found:
        raise TraceError(f"{where}: empty; write {FORM},...")
    return found


def mapping_text(columns: Columns) -> str:
    """Return the text that ``parse_mapping`` reads."""
    line = StringIO()
    csv.writer(line, lineterminator="").writerow([f"{key}={name}" for key, name in columns.items()])
    return line.getvalue()


def missing_of(columns: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the needed quantities of which none is among the keys of a mapping."""
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
