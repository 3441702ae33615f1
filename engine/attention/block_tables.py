"""Where the contexts of decodes are stored, as a kernel reads it."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from servetwin.engine.kv.kv_store import KVStore
from servetwin.policies.batch import ScheduledSequence

NO_WINDOW = 2**30
"""More positions than any context has."""


@dataclass(frozen=True, slots=True)
class StoredHeads:
    """Keys and values of one layer in slots, [slots, kv heads, width]; the widths may differ.

    ``key_scales`` and ``value_scales`` [slots, kv heads] multiply integers.
    """

    keys: Tensor
    values: Tensor
    key_scales: Tensor | None = None
    value_scales: Tensor | None = None


@dataclass(frozen=True, slots=True)
class BlockTables:
    """The contexts of rows: position p of a row is in slot ``starts[row, p // span_tokens] + p %
    span_tokens``, as ``KVStore.span_starts`` has it.

    ``contexts`` [rows] counts positions, 0 for a row that attends to nothing. Both may be columns
    of a wider tensor.
    """

    starts: Tensor
    contexts: Tensor
    span_tokens: int


@dataclass(frozen=True, slots=True)
class Visibility:
    """The positions that a decode sees: the first ``sinks`` and the last ``window``."""

    window: int = NO_WINDOW
    sinks: int = 0


SEES_ALL = Visibility()


class DecodeKernel(Protocol):
    """Attention of one row per sequence over block tables."""

    def __call__(
        self,
        queries: Tensor,
        stored: StoredHeads,
        tables: BlockTables,
        visible: Visibility = SEES_ALL,
    ) -> Tensor:
        """Map queries [rows, kv heads, group, width] to [rows, kv heads, group, value width]."""


class SpanTables:
    """Tables of the steps of one store. Most rows are those of the step before: they are kept."""

    def __init__(self, store: KVStore) -> None:
        self.store = store
        self._places: list[_Place] = []
        self._table = np.zeros((0, 0), dtype=np.int64)

    def of(self, entries: list[ScheduledSequence]) -> NDArray[np.int64]:
        """Return the starts of the spans of every decode, [entries, spans of the longest]."""
        places = [(entry.seq.region_start, entry.seq.blocks) for entry in entries]
        if places != self._places:
            self._renew(places)
        longest = max([start + tokens for _, start, tokens, _, _ in entries])
        return self._table[: len(places), : -(-longest // self.store.span_tokens)].copy()

    def _renew(self, places: list["_Place"]) -> None:
        """Write the rows that are not those of the step before."""
        known = self._places
        changed = [
            (row, self.store.span_starts(*place))
            for row, place in enumerate(places)
            if row >= len(known) or known[row] != place
        ]
        self._make_room(len(places), max([len(starts) for _, starts in changed], default=0))
        for row, starts in changed:
            self._table[row, : len(starts)] = starts
            self._table[row, len(starts) :] = 0
        self._places = [(region_start, list(blocks)) for region_start, blocks in places]

    def _make_room(self, rows: int, columns: int) -> None:
        before, (had_rows, had_columns) = self._table, self._table.shape
        if rows > had_rows or columns > had_columns:
            if columns > had_columns:  # contexts grow on
                columns = max(columns, 2 * had_columns)
            shape = max(rows, had_rows), max(columns, had_columns)
            self._table = np.zeros(shape, dtype=np.int64)
            self._table[:had_rows, :had_columns] = before


_Place = tuple[int, list[int]]
"""Where a sequence is: the start of its region, and its blocks."""
