"""Tables of a run as columns, arrays by name; a frame of pandas is made when one is read."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from servetwin.workloads.trace import AnyArray as AnyArray

if TYPE_CHECKING:
    import pandas as pd

# All of one length.
Columns: TypeAlias = dict[str, AnyArray]
# The type, for files that import pandas where they need it.
Frame: TypeAlias = "pd.DataFrame"
# Both have ``in``, and ``[]`` for a column.
Table: TypeAlias = "Columns | pd.DataFrame"


def columns_of(table: Table) -> Columns:
    """Return the columns of a frame, or these columns."""
    return table if isinstance(table, dict) else {str(n): table[n].to_numpy() for n in table}


def rows_of(columns: Columns, rows: AnyArray | slice) -> Columns:
    """Return some of the rows, by a mask, by their places or by a slice; all without a copy."""
    if isinstance(rows, np.ndarray):
        taken = np.flatnonzero(rows) if rows.dtype == bool else rows
        everything = np.arange(len(next(iter(columns.values()), ())))
        rows = slice(None) if np.array_equal(taken, everything) else rows
    return {name: column[rows] for name, column in columns.items()}


def stamps_of(rows: Iterable[Iterable[float]], names: tuple[str, ...]) -> Any:
    """Return the columns of stamps by request row; what had not happened is undefined."""
    padded = [(*row, *[np.nan] * (len(names) - len(row))) for row in map(tuple, rows)]
    stamps = np.array(padded, float).reshape(-1, len(names)).T
    return {n: s.astype(int if n == "row" else float) for n, s in zip(names, stamps, strict=True)}
