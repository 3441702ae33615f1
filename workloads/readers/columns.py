"""The columns of a CSV file, found by the names in its header, never by position."""

from collections.abc import Sequence

from servetwin.workloads.rows import RowError, Rows, counted


class Columns:
    """Takes the header of a file; raises TraceError where one of ``required`` is missing.

    Cells hold no commas: none of the published formats quotes.
    """

    def __init__(self, rows: Rows, required: Sequence[str]) -> None:
        line, header = rows.take()
        self.names = split_cells(header)
        for name in required:
            if name not in self.names:
                raise rows.failure(line, RowError(name, "missing column", header))

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def cells(self, text: str) -> dict[str, str]:
        """Return the cells of a row by column."""
        cells = split_cells(text)
        if len(cells) != len(self.names):
            first_missing = [*self.names, "row"][min(len(cells), len(self.names))]
            reason = f"the row has {len(cells)} cells where the header has {len(self.names)}"
            raise RowError(first_missing, reason, text)
        return dict(zip(self.names, cells, strict=True))


def has_columns(row: str, names: Sequence[str]) -> bool:
    """Return whether a row is a header with all of these columns."""
    return not row.startswith("{") and {*names} <= {*split_cells(row)}


def total_notes(differing: int) -> tuple[str, ...]:
    """Return a note where the total column of some rows differs from the sum of their tokens."""
    return (f"{counted(differing, 'row')} whose total is not the sum",) if differing else ()


def split_cells(text: str) -> list[str]:
    """Return the cells of a row without quotes."""
    return [cell.strip() for cell in text.split(",")]
