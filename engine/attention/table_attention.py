"""Attention of decodes by a kernel that reads block tables: nothing is gathered.

All that a step of decodes reads is one matrix of integers, a row for each. One copy brings it to
the device, and a captured graph finds it there: its columns are views.

``NO_WINDOW``: more positions than any context has. ``DecodeKernel``: attention of one row per
sequence: (queries [rows, kv heads, group, width], ``StoredHeads``, ``BlockTables``, last positions
that are seen) to [rows, kv heads, group, value width]. ``COLUMNS``: in a row: token id, position,
slot to write, tokens of context; starts of spans follow. ``_Place``: where a sequence is: the start
of its region, and its blocks.
"""

from collections.abc import Callable
from collections.abc import Sequence as Listed
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from servetwin.engine.attention.step_attention import Attend, AttentionBackend, DecodeStep, Windows
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.models.device import to_device
from servetwin.policies.batch import ScheduledSequence

NO_WINDOW = 2**30


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


DecodeKernel = Callable[..., Tensor]
COLUMNS = 4


@dataclass(frozen=True, slots=True)
class DecodeRows:
    """The matrix of a step of decodes on the device; ``span_tokens`` are those of its tables."""

    matrix: Tensor
    span_tokens: int

    @property
    def inputs(self) -> tuple[Tensor, Tensor]:
        """The token of each row, and its position."""
        return self.matrix[:, 0], self.matrix[:, 1]

    @property
    def slots(self) -> Tensor:
        """Where the keys and values of each row go."""
        return self.matrix[:, 2]

    @property
    def tables(self) -> BlockTables:
        """What each row attends to."""
        return BlockTables(self.matrix[:, COLUMNS:], self.matrix[:, 3], self.span_tokens)


_Place = tuple[int, list[int]]


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

    def _renew(self, places: list[_Place]) -> None:
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


def pack_rows(
    tables: SpanTables, entries: list[ScheduledSequence], token_ids: Listed[int]
) -> NDArray[np.int64]:
    """Return the matrix of ``entries``, all decodes, with the token of each.

    A row that has no token (its sequence has ended) writes to the spare slot.
    """
    store, table = tables.store, tables.of(entries)
    matrix = np.empty((len(entries), COLUMNS + table.shape[1]), dtype=np.int64)
    matrix[:, COLUMNS:] = table
    for row, entry, token_id in zip(matrix, entries, token_ids, strict=True):
        seq, start, tokens = entry.seq, entry.start, entry.tokens
        slot = store.slot(seq, start) if tokens else store.spare_slot
        row[:COLUMNS] = (token_id, start, slot, start + tokens)
    return matrix


def idle_rows(store: KVStore, rows: int, columns: int) -> NDArray[np.int64]:
    """Return rows that attend to nothing and write to the spare slot."""
    matrix = np.zeros((rows, columns), dtype=np.int64)
    matrix[:, 2] = store.spare_slot
    return matrix


class TableAttention(AttentionBackend):
    """All decodes in one call of ``kernel``, whatever their contexts and the layout."""

    name = "triton"

    def __init__(self, store: KVStore, kernel: DecodeKernel, windows: Windows = ()) -> None:
        super().__init__(store, windows)
        self._kernel = kernel

    def plan_decodes(self, entries: list[ScheduledSequence], window: int | None) -> DecodeStep:
        """Return the kernel over the tables of these entries."""
        contexts = [entry.start + entry.tokens for entry in entries]
        device = self.store.keys.device
        tables = BlockTables(
            to_device(SpanTables(self.store).of(entries), device),
            to_device(contexts, device),
            self.store.span_tokens,
        )
        return self._over(tables, window)

    def plan_matrix(self, rows: DecodeRows) -> Attend:
        """Return the attention of a step of decodes whose inputs may change between calls."""
        return self.plan_rows(rows.slots, partial(self._over, rows.tables))

    def _over(self, tables: BlockTables, window: int | None) -> DecodeStep:
        def attend(layer: int, queries: Tensor) -> Tensor:
            stored = StoredHeads(*self.store.layers[layer], *self.store.scales(layer))
            return self._kernel(queries, stored, tables, window or NO_WINDOW)

        return attend
