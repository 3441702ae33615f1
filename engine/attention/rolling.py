"""Attention over a KV memory that forgets: a sliding window, with sinks or without.

A query sees the positions that are kept when its own has been stored. Positions are absolute in a
window (Mistral 7B, 2023). With sinks they are those within the cache (StreamingLLM, Xiao 2023,
section 3.2): distances within the window stay as they are, and the sinks come right before it. That
is a rotation of the query back to where it stands in the cache, for the sinks alone.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from engine.attention.chunk_kernels import additive_mask
from engine.attention.native import NativeAttention
from engine.attention.step_attention import Attend, AttentionBackend, DecodeStep
from engine.kv.kept_tokens import KeptTokens
from engine.kv.kv_store import KVStore, heads_first
from engine.models.device import to_device
from engine.models.rotary import rotate
from policies.batch import ScheduledSequence


class RollingAttention(AttentionBackend):
    """Decodes attend by ``inner`` to what is kept, in whatever order it lies; chunks, and decodes
    that see sinks, to the kept positions before them and to themselves.

    ``frequencies`` are the angles of the rotary positions.
    """

    def __init__(self, inner: AttentionBackend, kept: KeptTokens, frequencies: Tensor) -> None:
        super().__init__(inner.store)
        self.name = inner.name
        self._inner, self._kept, self._frequencies = inner, kept, frequencies

    def plan(self, entries: list[ScheduledSequence], decodes: int | None = None) -> Attend:
        """Prepare what does not depend on the layer."""
        assert decodes is not None
        if self._kept.sinks and not isinstance(self._inner, NativeAttention):
            decodes = 0
        attend = self.plan_decodes(entries[:decodes], None) if decodes else None
        chunks, row = [], decodes
        for entry in entries[decodes:]:
            chunks.append(self._chunk(entry, row))
            row += entry.rows
        return _RollingStep(self.store, *self._writes(entries), decodes, attend, chunks)

    def plan_decodes(self, entries: list[ScheduledSequence], window: int | None) -> DecodeStep:
        """Return the attention to all that is kept, the own position included."""
        within = [self._within(entry) for entry in entries]
        if not self._kept.sinks:
            return self._inner.plan_decodes(within, window)
        assert isinstance(self._inner, NativeAttention)
        attend = self._inner.plan_with_sinks(within, self._kept.sinks)
        cos, sin = self._turn_back(np.array([entry.start for entry in entries]))

        def attend_with_sinks(layer: int, queries: Tensor) -> Tensor:
            return attend(layer, queries, _turned(queries, cos, sin))

        return attend_with_sinks

    def _turn_back(self, positions: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return cosines and sines that turn queries back to their places in the cache."""
        shift = np.maximum(0, positions + 1 - self._kept.total)
        angles = torch.outer(to_device(shift, self.store.keys.device).float(), self._frequencies)
        return angles.cos().repeat(1, 2), torch.cat((angles.sin(), -angles.sin()), dim=1)

    def _within(self, entry: ScheduledSequence) -> ScheduledSequence:
        """Return a decode as if its sequence had begun with what is kept."""
        stop = min(entry.start + entry.tokens, self._kept.total)
        return entry._replace(start=stop - entry.tokens)

    def _writes(self, entries: list[ScheduledSequence]) -> tuple[Tensor, Tensor]:
        """Return the rows that are kept, and their slots."""
        rows: list[int] = []
        slots: list[int] = []
        row = 0
        for entry in entries:
            positions = self._kept.positions(entry.start + entry.tokens)
            new = positions[positions >= entry.start] if entry.tokens else positions[:0]
            rows += (new - entry.start + row).tolist()
            slots += self._slots(entry, new).tolist()
            row += entry.rows
        device = self.store.keys.device
        return to_device(rows, device), to_device(slots, device)

    def _slots(self, entry: ScheduledSequence, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._kept.slots(entry.seq.blocks, positions, self.store.block_tokens)

    def _chunk(self, entry: ScheduledSequence, row: int) -> "_RollingChunk":
        device, kept = self.store.keys.device, self._kept
        before = kept.positions(entry.start)
        own = np.arange(entry.start, entry.start + entry.tokens)
        keys, queries = np.concatenate([before, own])[None], own[:, None]
        hidden = (keys > queries) | ((keys <= queries - kept.window) & (keys >= kept.sinks))
        back = None
        if kept.sinks:
            back = self._turn_back(own)
        return _RollingChunk(
            slice(row, row + entry.tokens),
            entry.padding,
            to_device(self._slots(entry, before), device),
            additive_mask(torch.from_numpy(hidden).to(device), self.store.dtype),
            min(kept.sinks, keys.shape[1]),
            back,
        )


@dataclass(frozen=True, slots=True)
class _RollingStep:
    """Reads what a chunk's own rows may overwrite, writes, then attends."""

    store: KVStore
    rows: Tensor
    slots: Tensor
    decodes: int
    attend_decodes: DecodeStep | None
    chunks: list["_RollingChunk"]

    def __call__(
        self, layer: int, queries: Tensor, keys: Tensor | None, values: Tensor | None
    ) -> Tensor:
        assert keys is not None
        assert values is not None
        before = [self.store.read(layer, chunk.before) for chunk in self.chunks]
        kept_rows = keys.index_select(0, self.rows), values.index_select(0, self.rows)
        self.store.write(layer, self.slots, *kept_rows)
        grouped = queries.view(len(queries), keys.shape[1], -1, queries.shape[2])
        outputs = []
        if self.attend_decodes is not None:
            outputs.append(self.attend_decodes(layer, grouped[: self.decodes]))
        for chunk, context in zip(self.chunks, before, strict=True):
            own = self.store.as_read(keys[chunk.rows], values[chunk.rows])
            outputs.append(chunk(grouped[chunk.rows], context, own))
        return torch.cat(outputs).flatten(1)


@dataclass(frozen=True, slots=True)
class _RollingChunk:
    """Rows of a sequence, and the kept positions before them."""

    rows: slice
    padding: int
    before: Tensor
    mask: Tensor
    sinks: int
    """How many of the keys, the first ones, are of sinks."""
    back: tuple[Tensor, Tensor] | None
    """Cosines and sines that turn each query back to its place in the cache."""

    def __call__(
        self, queries: Tensor, context: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Attend: queries [rows, kv heads, group, head dim] to the same, with padding behind."""
        if not len(queries):
            return queries.new_zeros((self.padding, *queries.shape[1:]))
        keys, values = (torch.cat(parts) for parts in zip(context, own, strict=True))
        asked, found = queries, keys
        if self.back is not None:
            asked, found = self._apart(queries, keys, *self.back)
        group = queries.shape[2]
        output = F.scaled_dot_product_attention(
            asked.permute(1, 2, 0, 3),
            heads_first(found).expand(-1, group, -1, -1),
            heads_first(values).expand(-1, group, -1, -1),
            attn_mask=self.mask,
            scale=queries.shape[3] ** -0.5,
        ).permute(2, 0, 1, 3)
        return F.pad(output, (0, 0, 0, 0, 0, 0, 0, self.padding)) if self.padding else output

    def _apart(
        self, queries: Tensor, keys: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return queries and keys of twice the width: one half meets the sinks, one the others."""
        turned = _turned(queries, cos, sin)
        wide = keys.new_zeros((*keys.shape[:2], 2 * keys.shape[2]))
        wide[: self.sinks, :, : keys.shape[2]] = keys[: self.sinks]
        wide[self.sinks :, :, keys.shape[2] :] = keys[self.sinks :]
        return torch.cat((turned, queries), dim=-1), wide


def _turned(queries: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return queries [rows, kv heads, group, head dim], each row turned by its angles."""
    factors = (factor[:, None].to(queries.dtype) for factor in (cos, sin))
    return rotate(queries.flatten(1, 2), *factors).view_as(queries)
