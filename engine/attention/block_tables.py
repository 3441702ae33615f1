"""Where the contexts of decodes are stored, as a kernel reads it."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.kv.kv_store import KVStore
from policies.batch import ScheduledSequence
from policies.sequence import Sequence

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
        self._known: dict[str, _KnownSpans] = {}

    def of(self, entries: list[ScheduledSequence]) -> NDArray[np.int64]:
        """Return the starts of the spans of every decode, [entries, spans of the longest]."""
        known, self._known = self._known, {}
        spans = self.store.span_tokens
        rows = []
        for entry in entries:
            name, context = entry.seq.request_id, entry.start + entry.tokens
            kept = known.get(name)
            if kept is None or not kept.holds(entry.seq):
                kept = _KnownSpans.of(self.store, entry.seq, context)
            self._known[name] = kept
            rows.append(kept.starts[: -(-context // spans)])
        table = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
        for row, starts in zip(table, rows, strict=True):
            row[: len(starts)] = starts
        return table


class _KnownSpans(NamedTuple):
    """The spans of a sequence, and the place that they follow from."""

    region_start: int
    blocks: list[int]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, store: KVStore, seq: Sequence, context: int) -> "_KnownSpans":
        held = max(context, len(seq.blocks) * store.block_tokens)
        starts = np.array(store.span_starts(seq, held), dtype=np.int64)
        return cls(seq.region_start, list(seq.blocks), starts)

    def holds(self, seq: Sequence) -> bool:
        """Return whether the sequence still is where it was."""
        return self.region_start == seq.region_start and self.blocks == seq.blocks
