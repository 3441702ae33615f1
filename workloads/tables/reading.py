"""Reading a table of requests by a mapping, or by what its columns are recognised to be."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from servetwin.workloads.errors import TraceError, require_name
from servetwin.workloads.rows import RowError, Rows, counted
from servetwin.workloads.tables.mapping import (
    OPTION,
    WORDS,
    Columns,
    mapping_text,
    missing_of,
    quantity_of,
)
from servetwin.workloads.tables.recognition import Recognition
from servetwin.workloads.tables.table import Cells, RowParser, Table, TableRow

_SHOWN_REASONS = 5


@dataclass(frozen=True, slots=True)
class TableReading:
    """All valid rows of a table, the columns they come from, and notes."""

    rows: Sequence[TableRow]
    columns: Columns
    notes: tuple[str, ...]
    cells: Sequence[Cells]
    """The cells of each row, if columns hold HTTP headers."""

    @property
    def estimates(self) -> bool:
        """Whether texts stand for counts of tokens."""
        pairs = (("prompt", "prompt_tokens"), ("answer", "output_tokens"))
        return any(text in self.columns and count not in self.columns for text, count in pairs)


def read_table(rows: Rows, given: Columns | None = None, keep_cells: bool = False) -> TableReading:
    """Read the requests of a table; ``given`` is a mapping, perhaps of some of what is needed.

    Raises ``TraceError``, with a mapping that would do, where a column that is needed is in doubt.
    """
    table = Table(rows)
    if not table.sample:
        table.parsed(_bad)
        return TableReading((), given or {}, (), ())
    recognition = Recognition(table)
    columns = settled(rows, table, recognition, given or {})
    parser = RowParser(columns, table.comma)
    parsed = table.parsed(
        lambda line, cells: (parser.parse(line, cells), cells if keep_cells else {})
    )
    read = [row for row, _ in parsed]
    return TableReading(
        read,
        columns,
        tuple(_notes(rows, recognition, columns, read)),
        [cells for _, cells in parsed],
    )


def _bad(line: int, cells: Cells) -> TableRow:
    raise RowError("row", "empty", "")


def settled(rows: Rows, table: Table, recognition: Recognition, given: Columns) -> dict[str, str]:
    """Return the mapping that a table is read by.

    Raises ``TraceError`` where that cannot be known.
    """
    for key, name in given.items():
        unknown = f"{rows.path}:{table.line}: {OPTION}: {key}: no column"
        require_name(name, table.names, unknown, TraceError, f"it has {', '.join(table.names)}")
    if not given:
        if not recognition.is_certain:
            raise TraceError(f"{rows.path}:{table.line}: {recognition.message()}")
        return dict(recognition.columns)
    columns = dict(given)
    for names in missing_of(given):
        keys = [k for k in recognition.columns if quantity_of(k) in names]
        columns |= {
            k: recognition.columns[k] for k in keys if recognition.columns[k] not in given.values()
        }
    if missing := missing_of(columns):
        what = " and ".join(WORDS[names[0]] for names in missing)
        would = {**_beside(given, recognition.proposed), **given}
        hint = f"; {shlex.quote(mapping_text(would))} would do" if not missing_of(would) else ""
        raise TraceError(f"{rows.path}:{table.line}: {OPTION}: {what} missing{hint}")
    return columns


def _beside(given: Columns, proposed: Columns) -> dict[str, str]:
    """Return what is proposed of the quantities and columns that are not given."""
    quantities, names = {quantity_of(key) for key in given}, {*given.values()}
    return {
        key: name
        for key, name in proposed.items()
        if quantity_of(key) not in quantities and name not in names
    }


def _notes(
    rows: Rows, recognition: Recognition, columns: Columns, read: Sequence[TableRow]
) -> list[str]:
    taken = f"columns taken: {mapping_text(columns)}"
    unused = recognition.unused(dict(columns))
    notes = [taken + (f"; left: {', '.join(unused)}" if unused else "")]
    if recognition.asides:
        notes.append(f"left, in doubt: {'; '.join(recognition.asides)} ({OPTION})")
    failures = Counter(row.failure for row in read if row.failure is not None)
    if failures:
        listed = ", ".join(
            f"{reason} ({n:,})" for reason, n in failures.most_common(_SHOWN_REASONS)
        )
        notes.append(f"failed: {listed}; not simulated, though the server had them")
    if measured := sum(row.is_measured for row in read):
        notes.append(
            f"{counted(measured, 'request')} with measured times: servetwin calibrate --recorded "
            f"{shlex.quote(rows.path.name)} fits step times to them"
        )
    return notes
