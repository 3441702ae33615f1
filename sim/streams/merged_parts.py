"""The rows of parts, merged into the order that one process gives them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from servetwin.sim.streams.table_sink import spooled

KEYS = {
    "requests": ("row",),
    "steps": ("end_s", "replica"),
    "pauses": ("row", "preempted_s"),
    "handovers": ("row",),
}
"""What the rows of each table are in order of."""


@dataclass
class _Head:
    """The next rows of a part, and the pieces behind them."""

    behind: Iterator[pa.Table]
    rows: pa.Table | None = None
    keys: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    ended: bool = False

    def lengthen(self, key: str) -> None:
        """Add the next piece."""
        piece = next(self.behind, None)
        if piece is None:
            self.ended = True
            return
        self.rows = piece if self.rows is None else pa.concat_tables([self.rows, piece])
        self.keys = self.rows[key].to_numpy()

    def taken(self, rows: int) -> pa.Table | None:
        """Take the first rows away."""
        if self.rows is None or not rows:
            return None
        first, self.rows = self.rows.slice(0, rows), self.rows.slice(rows)
        self.keys = self.keys[rows:]
        return first


def chained(folders: Sequence[Path], name: str) -> Iterator[pa.Table]:
    """Yield the rows of a table of parts that follow each other."""
    for folder in folders:
        yield from spooled(folder, name)


def merged(folders: Sequence[Path], name: str) -> Iterator[pa.Table]:
    """Yield the rows of a table of parts side by side in the order of ``KEYS``.

    The rows of each part are in this order.

    No more than a few pieces of each part are in memory.
    """
    first_key = KEYS[name][0]
    heads = [_Head(spooled(folder, name)) for folder in folders]
    while True:
        for head in heads:
            if not head.ended and not len(head.keys):
                head.lengthen(first_key)
        open_ends = [head.keys[-1] for head in heads if not head.ended]
        bound = min(open_ends, default=np.inf)  # rows up to there have all been seen, but for ties
        taken = [head.taken(int(np.searchsorted(head.keys, bound))) for head in heads]
        if rows := [table for table in taken if table is not None]:
            yield _in_order(pa.concat_tables(rows), KEYS[name])
        elif not open_ends:
            return
        else:
            for head in heads:
                if not head.ended and head.keys[-1] == bound:
                    head.lengthen(first_key)


def _in_order(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    columns = [table[name].to_numpy() for name in keys]
    order = np.lexsort(columns[::-1])
    return table if (order == np.arange(len(order))).all() else table.take(order)
