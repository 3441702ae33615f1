"""Attention of a batch over the KV store, planned once per step and run once per layer.

Rows of a step: first one per decode, then those of each prefill chunk. The query heads that share
a key head are folded: into the query length for decodes, where they are rows of one matrix
product, and into the head axis for chunks, where a key head is read for all of them without a copy.

``Attend``: (layer, queries, keys, values), each [rows, heads, head dim], to [rows, heads * head
dim]. Without keys and values, the layer has those that another brought last. ``_FLASH_WIDTH``: the
widest heads of FlashAttention. ``Windows``: how many tokens a query of each layer sees, its own
included (None: all); empty: all. ``DecodeStep``: (layer, queries of all decodes), [decodes, kv
heads, group, head dim], to the same shape.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from servetwin.engine.attention.score_rules import ScoreRules
from servetwin.engine.kv.kv_store import KVStore, ReadContext, heads_first
from servetwin.engine.models.device import to_device
from servetwin.policies.batch import ScheduledSequence

Attend = Callable[[int, Tensor, Tensor | None, Tensor | None], Tensor]
_FLASH_WIDTH = 256
Windows = tuple[int | None, ...]
DecodeStep = Callable[[int, Tensor], Tensor]


def is_decode(entry: ScheduledSequence) -> bool:
    """Return whether the entry is one row over stored positions; any other entry is a chunk."""
    return entry.rows == 1 and entry.start + entry.tokens > 0


class AttentionBackend:
    """Attention of entries one by one; a subclass has kernels for the decodes.

    Without a cache (not ``cached``) entries are prompts as long as the contexts, and nothing is
    stored. ``rules`` say how scores are made (None: as is usual). ``tree``: which rows of a tree of
    drafts each of them sees [rows, rows]; None: all before it.
    """

    name = "per-sequence"

    def __init__(
        self,
        store: KVStore,
        windows: Windows = (),
        rules: ScoreRules | None = None,
        *,
        cached: bool = True,
    ) -> None:
        self.store, self.rules, self._cached = store, rules, cached
        self.tree: Tensor | None = None
        self.fused = rules is None and takes_fused(store.keys.device)
        self._windows = windows or (None,) * len(store.layers)
        self._sees_all = not any(self._windows)

    def plan(self, entries: list[ScheduledSequence], decodes: int | None = None) -> Attend:
        """Prepare what does not depend on the layer, for ``entries``; the first ``decodes`` of them
        are decodes (None: all that are by their rows), the others chunks.

        A decode's context is what is stored after this step; so the row of a sequence that has
        ended (no tokens, one of padding) reads as much as it would, and writes nothing.
        """
        if not self._cached:
            return self.plan_prompts(entries)
        if decodes is None:
            decodes = sum(map(is_decode, entries))
        return _Step(self.store, self.plan_write(entries), self._plan(entries, decodes))

    def plan_prompts(self, entries: list[ScheduledSequence]) -> Attend:
        """Prepare whole prompts, which attend to themselves alone; nothing is stored."""
        return _Step(self.store, None, self._plan(entries, 0))

    def plan_rows(self, slots: Tensor, attend: Callable[[int | None], DecodeStep]) -> Attend:
        """Return the attention of rows that are all decodes and write to ``slots``, each window by
        ``attend``; what the tensors hold may change between calls.
        """
        reads = {window: _Reads(len(slots), attend(window), []) for window in set(self._windows)}
        return _Step(self.store, Write(slots, None), [reads[window] for window in self._windows])

    def _plan(self, entries: list[ScheduledSequence], decodes: int) -> list["_Reads"]:
        """Return what each layer reads; layers with equal windows share it."""
        if self._sees_all:
            return [self._reads(entries[:decodes], entries[decodes:], None)] * len(self._windows)
        parts = entries[:decodes], entries[decodes:]
        longest = max(entry.start + entry.rows for entry in entries)
        windows = [window if window and window < longest else None for window in self._windows]
        reads = {window: self._reads(*parts, window) for window in set(windows)}
        return [reads[window] for window in windows]

    def _reads(
        self, decodes: list[ScheduledSequence], chunks: list[ScheduledSequence], window: int | None
    ) -> "_Reads":
        ends = list(accumulate((entry.rows for entry in chunks), initial=len(decodes)))
        plans = [
            self.plan_chunk(entry, slice(first, end), window)
            for entry, first, end in zip(chunks, ends, ends[1:], strict=False)
        ]
        attend_decodes = self.plan_decodes(decodes, window) if decodes else None
        return _Reads(len(decodes), attend_decodes, plans)

    def plan_write(self, entries: list[ScheduledSequence]) -> "Write":
        """Return which new rows of a batch are stored, and where."""
        return Write.plan(self.store, entries)

    def plan_chunk(self, entry: ScheduledSequence, rows: slice, window: int | None) -> "Chunk":
        """Return the attention of a chunk, whose rows in the step are given."""
        return _Chunk.plan(self, entry, rows, window)

    def plan_decodes(self, entries: list[ScheduledSequence], window: int | None) -> DecodeStep:
        """Return the attention of the decodes among the entries to the last ``window`` tokens: a
        loop without padding, which finds what it has gathered in the CPU's cache.
        """
        stops = [entry.start + entry.tokens for entry in entries]
        contexts = [
            self.store.context(entry.seq, stop, first_seen(stop - 1, window))
            for entry, stop in zip(entries, stops, strict=True)
        ]
        rules = self.rules

        def attend_one(layer: int, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            if rules is None:
                return F.scaled_dot_product_attention(query, keys, values)
            return rules(layer, query.transpose(1, 2), keys, values, None).transpose(1, 2)

        def attend(layer: int, queries: Tensor) -> Tensor:
            each = zip(queries.unsqueeze(2).unbind(), contexts, strict=True)
            outputs = [attend_one(layer, query, *context(layer)) for query, context in each]
            return torch.stack(outputs).squeeze(2)

        return attend


def first_seen(position: int, window: int | None) -> int:
    """Return the first position that the query at ``position`` sees."""
    return 0 if window is None else max(0, position + 1 - window)


class Chunk(ABC):
    """Rows of one sequence in a step."""

    rows: slice

    def read_before(self, layer: int) -> None:
        """Read what the step's own rows may overwrite, before they are stored."""
        del layer

    @abstractmethod
    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend: queries [rows, kv heads, group, head dim] to the same; keys and values are
        [rows, kv heads, head dim].
        """


@dataclass(slots=True)
class _Step:
    """Writes keys and values of the whole batch, then attends: prompts may share new blocks.

    ``reads``: of each layer. ``last``: keys and values of the rows, from the last layer that has
    its own; for those that share.
    """

    store: KVStore
    write: "Write | None"
    reads: list["_Reads"]
    last: tuple[Tensor, Tensor] | None = None

    def __call__(
        self, layer: int, queries: Tensor, keys: Tensor | None, values: Tensor | None
    ) -> Tensor:
        reads = self.reads[layer]
        if keys is None or values is None:
            assert self.last is not None
            keys, values = self.last
        else:
            if self.store.shares_layers:
                self.last = keys, values
            for chunk in reads.chunks:
                chunk.read_before(layer)
            if self.write is not None:
                self.write(self.store, layer, keys, values)
        grouped = queries.view(len(queries), keys.shape[1], -1, queries.shape[2])
        if reads.chunks:
            keys, values = self.store.as_read(keys, values)
        return reads(layer, grouped, keys, values)


@dataclass(frozen=True, slots=True)
class _Reads:
    """What the rows of a step attend to in the layers with the same window."""

    decodes: int
    attend_decodes: DecodeStep | None
    chunks: list[Chunk]

    def __call__(self, layer: int, grouped: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        outputs = [
            chunk(layer, grouped[chunk.rows], keys[chunk.rows], values[chunk.rows])
            for chunk in self.chunks
        ]
        if self.attend_decodes is not None:
            outputs.insert(0, self.attend_decodes(layer, grouped[: self.decodes]))
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs)).flatten(1)


@dataclass(frozen=True, slots=True)
class Write:
    """Which rows are stored, and where.

    ``rows``: none: all rows, in order.
    """

    slots: Tensor
    rows: Tensor | None

    @classmethod
    def plan(cls, store: KVStore, entries: list[ScheduledSequence]) -> "Write":
        """Return the write of all new rows of a batch to where their positions belong."""
        device = store.keys.device
        if all(tokens == 1 and not padding for _, _, tokens, _, padding in entries):
            return cls(to_device(store.first_slots(entries), device), None)
        slots: list[int] = []
        rows: list[int] = []
        row = 0
        for entry in entries:
            if entry.tokens:
                slots += store.slots(entry.seq, entry.start, entry.start + entry.tokens).tolist()
            rows += range(row, row + entry.tokens)
            row += entry.rows
        return cls(to_device(slots, device), None if len(rows) == row else to_device(rows, device))

    def __call__(self, store: KVStore, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store keys and values [rows, kv heads, head dim] of one layer."""
        if self.rows is not None:
            keys, values = keys.index_select(0, self.rows), values.index_select(0, self.rows)
        store.write(layer, self.slots, keys, values)


@dataclass(frozen=True, slots=True)
class _Chunk(Chunk):
    """Causal attention of one prompt chunk to what is stored before it and to itself.

    ``context``: none: the chunk starts its sequence, so its own rows are the whole context.
    ``mask``: none: causal, and nothing is stored before the chunk.
    """

    rows: slice
    tokens: int
    padding: int
    context: ReadContext | None
    mask: Tensor | None
    grouped: bool
    rules: ScoreRules | None

    @classmethod
    def plan(
        cls, attention: AttentionBackend, entry: ScheduledSequence, rows: slice, window: int | None
    ) -> "_Chunk":
        store, tree, fused = attention.store, attention.tree, attention.fused
        start, stop = entry.start, entry.start + entry.tokens
        first, grouped = first_seen(start, window), fused and reads_groups(store)
        context = store.context(entry.seq, stop, first) if start else None
        made = partial(cls, rows, entry.tokens, entry.padding, context, rules=attention.rules)
        if context is None and (window is None or entry.rows <= window):
            return made(None, grouped)
        root = entry.seq.total_tokens - 1
        drafted = tree is not None and stop - 1 > root
        if window is None and not drafted:
            return made(causal_mask(entry.rows, start, store.dtype, fused=fused), grouped)
        hidden = _hidden(entry.rows, start - first, window, store.keys.device)
        if tree is not None and drafted:
            shown = tree[start - root : stop - root, : stop - root]
            hidden[:, root - first :] = shown.logical_not()
        return made(additive_mask(hidden, store.dtype), False)

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend to what is stored before the chunk, and to the chunk itself."""
        all_keys, all_values = self._context(layer, heads_first(keys), heads_first(values))
        queries = queries.permute(1, 2, 0, 3)
        if self.rules is not None:
            output = self.rules(layer, queries, all_keys, all_values, self.mask)
            return output.permute(2, 0, 1, 3)
        views = 1 if self.grouped else queries.shape[1]
        output = F.scaled_dot_product_attention(
            queries,
            all_keys.expand(-1, views, -1, -1),
            all_values.expand(-1, views, -1, -1),
            attn_mask=self.mask,
            is_causal=self.mask is None,
            enable_gqa=self.grouped,
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


def _hidden(rows: int, before: int, window: int | None, device: torch.device) -> Tensor:
    """Return which keys each row of a chunk may not see: later ones, and those that have left the
    window; ``before`` keys come before those of the chunk.
    """
    every = torch.ones(rows, before + rows, dtype=torch.bool, device=device)
    later = every.triu(before + 1)
    return later if window is None else later.logical_or_(every.tril(before - window))


def takes_fused(device: torch.device) -> bool:
    """Return whether chunks attend by CUDA's fused kernels.

    They know a causal mask that ends at the last key; numbers to add would be read from memory, and
    keep them from the fastest one.
    """
    return device.type == "cuda"


def reads_groups(store: KVStore) -> bool:
    """Return whether the fastest fused kernel, FlashAttention, takes what is stored; it alone knows
    groups of query heads. The others read views of a key head, one for each query head.
    """
    return store.dtype != torch.float32 and store.keys.shape[-1] <= _FLASH_WIDTH


def causal_mask(rows: int, before: int, dtype: torch.dtype, *, fused: bool) -> Tensor:
    """Return the mask of rows that see ``before`` keys and those up to their own."""
    if not fused:
        hidden = torch.ones(rows, before + rows, dtype=torch.bool).triu(before + 1)
        return additive_mask(hidden, dtype)
    from torch.nn.attention.bias import causal_lower_right  # brings torch's compiler: seconds

    mask: Tensor = causal_lower_right(rows, before + rows)
    return mask


def additive_mask(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a boolean mask (True: hidden) as numbers to add to the scores."""
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(
        hidden, -torch.inf
    )
