"""Where the contexts of decodes are stored, as a kernel reads it."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.kv.kv_store import KVStore
from policies.batch import ScheduledSequence

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


def table_of(store: KVStore, entries: list[ScheduledSequence]) -> NDArray[np.int64]:
    """Return the starts of the spans of every decode, [entries, spans of the longest]."""
    rows = [store.span_starts(entry.seq, entry.start + entry.tokens) for entry in entries]
    table = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for row, starts in zip(table, rows, strict=True):
        row[: len(starts)] = starts
    return table
