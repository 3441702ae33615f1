"""All that a step of decodes reads, one row each, as one matrix of integers.

One copy brings it to the device, and a captured graph finds it there: its columns are views.
"""

from collections.abc import Sequence as Listed
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from servetwin.engine.attention.block_tables import BlockTables, SpanTables
from servetwin.engine.kv.kv_store import KVStore
from servetwin.policies.batch import ScheduledSequence

COLUMNS = 4
"""Token id, position, slot to write, tokens of context; the starts of the spans follow."""


@dataclass(frozen=True, slots=True)
class DecodeRows:
    """The matrix on the device; ``span_tokens`` are those of its tables."""

    matrix: Tensor
    span_tokens: int

    @property
    def token_ids(self) -> Tensor:
        """The token of each row."""
        return self.matrix[:, 0]

    @property
    def positions(self) -> Tensor:
        """Its position."""
        return self.matrix[:, 1]

    @property
    def slots(self) -> Tensor:
        """Where its keys and values go."""
        return self.matrix[:, 2]

    @property
    def tables(self) -> BlockTables:
        """What it attends to."""
        return BlockTables(self.matrix[:, COLUMNS:], self.matrix[:, 3], self.span_tokens)


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
