"""Attention of a batch over the KV store, planned once per step and run once per layer.

Rows of a step: first one per decode, then those of each prefill chunk. The query heads that share
a key head are folded: into the query length for decodes, where they are rows of one matrix
product, and into the head axis for chunks, where keys are repeated without a copy.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.kv.kv_store import KVStore, ReadContext, heads_first
from engine.models.device import to_device
from policies.batch import ScheduledSequence

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, queries, keys, values), each [rows, heads, head dim], to [rows, heads * head dim]."""
DecodeStep = Callable[[int, Tensor], Tensor]
"""(layer, queries of all decodes), [decodes, kv heads, group, head dim], to the same shape."""


def is_decode(entry: ScheduledSequence) -> bool:
    """Return whether the entry is one row over stored positions; any other entry is a chunk."""
    return entry.rows == 1 and entry.start + entry.tokens > 0


class AttentionBackend(ABC):
    """Attention of chunks, one by one; a subclass says how the decodes attend."""

    name: str

    def __init__(self, store: KVStore) -> None:
        self.store = store

    def plan(self, entries: list[ScheduledSequence]) -> Attend:
        """Prepare what does not depend on the layer, for ``entries`` with the decodes first.

        A decode's context is what is stored after this step; so the row of a sequence that has
        ended (no tokens, one of padding) reads as much as it would, and writes nothing.
        """
        decodes = [entry for entry in entries if is_decode(entry)]
        chunks = entries[len(decodes) :]
        ends = list(accumulate((entry.rows for entry in chunks), initial=len(decodes)))
        write, rows = _Write.plan(self.store, entries), map(slice, ends, ends[1:])
        attend_decodes = self.plan_decodes(decodes) if decodes else None
        plans = [
            _Chunk.plan(self.store, entry, own) for entry, own in zip(chunks, rows, strict=True)
        ]
        return _Step(self.store, write, len(decodes), attend_decodes, plans)

    @abstractmethod
    def plan_decodes(self, entries: list[ScheduledSequence]) -> DecodeStep:
        """Return the attention of the decodes among the entries."""


@dataclass(frozen=True, slots=True)
class _Step:
    """Writes keys and values of the whole batch, then attends: prompts may share new blocks."""

    store: KVStore
    write: "_Write"
    decodes: int
    attend_decodes: DecodeStep | None
    chunks: list["_Chunk"]

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        self.write(self.store, layer, keys, values)
        grouped = queries.view(len(queries), keys.shape[1], -1, queries.shape[2])
        outputs = [
            chunk(layer, grouped[chunk.rows], keys[chunk.rows], values[chunk.rows])
            for chunk in self.chunks
        ]
        if self.attend_decodes is not None:
            outputs.insert(0, self.attend_decodes(layer, grouped[: self.decodes]))
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs)).flatten(1)


@dataclass(frozen=True, slots=True)
class _Write:
    """Which rows are stored, and where."""

    slots: Tensor
    rows: Tensor | None
    """None: all rows, in order."""

    @classmethod
    def plan(cls, store: KVStore, entries: list[ScheduledSequence]) -> "_Write":
        slots: list[int] = []
        rows: list[int] = []
        row = 0
        for entry in entries:
            if entry.tokens == 1:
                slots.append(store.slot(entry.seq, entry.start))
            elif entry.tokens:
                slots += store.slots(entry.seq, entry.start, entry.start + entry.tokens).tolist()
            rows += range(row, row + entry.tokens)
            row += entry.rows
        device = store.keys.device
        return cls(to_device(slots, device), None if len(rows) == row else to_device(rows, device))

    def __call__(self, store: KVStore, layer: int, keys: Tensor, values: Tensor) -> None:
        if self.rows is not None:
            keys, values = keys.index_select(0, self.rows), values.index_select(0, self.rows)
        store.write(layer, self.slots, keys, values)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Causal attention of one prompt chunk to what is stored before it and to itself."""

    rows: slice
    tokens: int
    padding: int
    context: ReadContext | None
    """None: the chunk starts its sequence, so its own rows are the whole context."""
    mask: Tensor | None

    @classmethod
    def plan(cls, store: KVStore, entry: ScheduledSequence, rows: slice) -> "_Chunk":
        if entry.start == 0:
            return cls(rows, entry.tokens, entry.padding, None, None)
        context = store.context(entry.seq, entry.start + entry.tokens)
        ahead = torch.ones(
            entry.rows, entry.start + entry.rows, dtype=torch.bool, device=store.keys.device
        ).triu(entry.start + 1)
        mask = additive_mask(ahead, store.keys.dtype)
        return cls(rows, entry.tokens, entry.padding, context, mask)

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend: queries [rows, kv heads, group, head dim], keys and values [rows, kv heads, head
        dim].
        """
        all_keys, all_values = self._context(layer, heads_first(keys), heads_first(values))
        output = F.scaled_dot_product_attention(
            queries.permute(1, 2, 0, 3),
            _repeat(all_keys, queries.shape[2]),
            _repeat(all_values, queries.shape[2]),
            attn_mask=self.mask,
            is_causal=self.mask is None,
        )
        return output.permute(2, 0, 1, 3)

    def _context(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if self.context is None:
            return keys, values
        stored = self.context(layer)
        if not self.padding:
            return stored
        all_keys = torch.cat((stored[0], keys[:, :, self.tokens :]), dim=2)
        return all_keys, torch.cat((stored[1], values[:, :, self.tokens :]), dim=2)


def additive_mask(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a boolean mask (True: hidden) as numbers to add to the scores."""
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(
        hidden, -torch.inf
    )


def _repeat(heads: Tensor, group: int) -> Tensor:
    """Repeat each key head for its query heads, without a copy where the kernel allows it."""
    repeated = heads.expand(-1, group, -1, -1)
    return repeated.contiguous() if heads.is_cuda else repeated
