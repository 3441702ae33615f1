"""An uploaded table whose columns have names of its own: what they may hold, and its first rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from servetwin.workloads.files import open_text
from servetwin.workloads.reading import TABLE, find_reader
from servetwin.workloads.rows import BadRows, RowError, Rows
from servetwin.workloads.tables.moments import Content
from servetwin.workloads.tables.recognition import Recognition, recognise
from servetwin.workloads.tables.table import Cells, RowParser, Table, TableRow

SHOWN_ROWS = 3


@dataclass(frozen=True, slots=True)
class OwnTable:
    """The file as it was uploaded, and what was seen of it."""

    name: str
    content: bytes
    found: Recognition
    sample: Sequence[Cells]
    comma: bool

    @property
    def names(self) -> list[str]:
        """The columns that have a name."""
        return [name for name in self.found.names if name]

    def is_text(self, name: str) -> bool:
        """Return whether a column has words rather than counts."""
        return Content.of([cells.get(name, "") for cells in self.sample], self.comma).are_texts

    def has(self, columns: Mapping[str, str]) -> bool:
        """Return whether it has all columns of a mapping."""
        return {*columns.values()} <= {*self.names}

    def read_rows(self, columns: Mapping[str, str]) -> list[dict[str, str]]:
        """Return the first rows as they are read by a mapping, or what is wrong with them."""
        parser, shown, first_ns = RowParser(columns, self.comma), [], None
        for cells in self.sample[:SHOWN_ROWS]:
            try:
                row = parser.parse(0, cells)
            except RowError as error:
                shown.append({"outcome": f"wrong: {error}"})
                continue
            first_ns = row.arrival_ns if first_ns is None else first_ns
            lengths = {name: row.counts.get(f"{name}_tokens") for name in ("prompt", "output")}
            shown.append(
                {
                    "arrival, s": f"{(row.arrival_ns - first_ns) / 1e9:+.3f}",
                    **{f"{name} tokens": _shown(count, row) for name, count in lengths.items()},
                    "outcome": "answered" if row.failure is None else f"failed: {row.failure}",
                }
            )
        return shown


def _shown(count: int | None, row: TableRow) -> str:
    if count is not None:
        return f"{count:,}"
    return "of the text" if row.failure is None else ""


def own_table(name: str, path: Path, content: bytes) -> OwnTable | None:
    """Return the table in a file; None where the file has a format that is known.

    Raises ``TraceError`` for a file that is neither.
    """
    with open_text(path) as lines:
        rows = Rows(path, lines, BadRows(0))
        if find_reader(rows, None) != TABLE:
            return None
        table = Table(rows)
        if not table.sample:
            return None  # reading it says what is wrong
        return OwnTable(name, content, recognise(table), table.sample, table.comma)
