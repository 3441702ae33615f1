"""Attention over a KV memory that forgets: a sliding window, with sinks or without.

A query sees the positions that are kept when its own has been stored. Positions are absolute in a
window (Mistral 7B, 2023). Sinks are the first tokens, which a query meets right before its window:
positions are those within the cache (StreamingLLM, Xiao 2023, section 3.2), so distances within the
window stay as they are, and for the sinks alone a query is turned back to where it stands there.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from servetwin.engine.attention.native import NativeAttention, SinkTurn
from servetwin.engine.attention.step_attention import (
    Attend,
    AttentionBackend,
    Chunk,
    DecodeStep,
    Write,
    additive_mask,
)
from servetwin.engine.kv.forgetting import KeptTokens
from servetwin.engine.kv.kv_store import KVStore, heads_first
from servetwin.engine.models.device import to_device
from servetwin.engine.models.rotary import rotate
from servetwin.policies.batch import ScheduledSequence

# Below this, the calls of a kernel cost more than the hidden keys that they leave out.
LEAST_PART_ROWS = 64


@dataclass(frozen=True, slots=True)
class RollingPart:
    """Some rows of a chunk, and the keys that one of them or more sees.

    ``sinks``: the first keys, which every row sees that does not come before them. ``window``:
    further keys, among those that are kept before the chunk and its own.
    """

    rows: slice
    sinks: int
    window: slice
    mask: Tensor

    def seen(self, kept: Tensor) -> Tensor:
        """Return the keys or values of this part: those of the sinks and those in the window."""
        if self.window.start == self.sinks:
            return kept[: self.window.stop]
        if not self.sinks:
            return kept[self.window]
        return torch.cat((kept[: self.sinks], kept[self.window]))

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Return [rows of the part, kv heads, group, width], of queries of the whole chunk."""
        group = queries.shape[2]
        return F.scaled_dot_product_attention(
            queries[self.rows].permute(1, 2, 0, 3),
            heads_first(self.seen(keys)).expand(-1, group, -1, -1),
            heads_first(self.seen(values)).expand(-1, group, -1, -1),
            attn_mask=self.mask,
            scale=scale,
        ).permute(2, 0, 1, 3)


@dataclass(slots=True)
class RollingChunk(Chunk):
    """Rows of a sequence, and the kept positions before them.

    ``before``: slots of what is kept before the chunk. ``sinks``: how many of the keys, the first
    ones, are of sinks. ``turn``: what turns each query back to its place in the cache. ``context``:
    keys and values of ``before`` in the running layer.
    """

    store: KVStore
    rows: slice
    tokens: int
    padding: int
    before: Tensor
    parts: list[RollingPart]
    sinks: int
    turn: SinkTurn | None
    context: tuple[Tensor, ...] = ()

    def read_before(self, layer: int) -> None:
        """Read what is kept before the chunk, whose places its own rows take."""
        self.context = self.store.read(layer, self.before)

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend to what was kept before the chunk, and to the chunk itself."""
        if not self.tokens:
            return torch.zeros_like(queries)
        chunk = keys[: self.tokens], values[: self.tokens]
        keys, values = (torch.cat(pair) for pair in zip(self.context, chunk, strict=True))
        queries, width = queries[: self.tokens], queries.shape[3]
        if self.turn is not None:
            queries, keys, values = with_sink_columns(queries, keys, values, self.sinks, self.turn)
        outputs = [part(queries, keys, values, width**-0.5) for part in self.parts]
        output = torch.cat(outputs)[..., :width]
        return F.pad(output, (0, 0, 0, 0, 0, 0, 0, self.padding)) if self.padding else output


def plan_parts(
    before: NDArray[np.int64], own: NDArray[np.int64], kept: KeptTokens, store: KVStore
) -> list[RollingPart]:
    """Return the parts of a chunk of the positions ``own``; ``before`` are kept before it."""
    positions = np.concatenate([before, own])
    sinks = min(kept.sinks, len(positions))
    step = max(LEAST_PART_ROWS, kept.window // 2)
    parts = []
    for first in range(0, len(own), step):
        rows = own[first : first + step]
        stop = max(sinks, len(before) + first + len(rows))
        start = int(np.searchsorted(positions, rows[0] - kept.window, side="right"))
        window = slice(max(sinks, start), stop)
        keys = np.concatenate([positions[:sinks], positions[window]])[None]
        queries = rows[:, None]
        hidden = (keys > queries) | ((keys <= queries - kept.window) & (keys >= kept.sinks))
        hidden_here = torch.from_numpy(hidden).to(store.keys.device)
        mask = additive_mask(hidden_here, store.dtype)
        parts.append(RollingPart(slice(first, first + len(rows)), sinks, window, mask))
    return parts


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
        """Prepare what does not depend on the layer; sinks need the native kernel for decodes."""
        if self._kept.sinks and not isinstance(self._inner, NativeAttention):
            decodes = 0
        return super().plan(entries, decodes)

    def plan_decodes(self, entries: list[ScheduledSequence], window: int | None) -> DecodeStep:
        """Return the attention to all that is kept, the own position included."""
        within = [self._within(entry) for entry in entries]
        if not self._kept.sinks:
            return self._inner.plan_decodes(within, window)
        assert isinstance(self._inner, NativeAttention)
        turn = self._turn(np.array([entry.start for entry in entries]))
        return self._inner.plan_with_sinks(within, self._kept.sinks, turn)

    def _turn(self, positions: NDArray[np.int64]) -> SinkTurn:
        return sink_turn(positions, self._kept, self._frequencies, self.store.dtype)

    def _within(self, entry: ScheduledSequence) -> ScheduledSequence:
        """Return a decode as if its sequence had begun with what is kept."""
        stop = min(entry.start + entry.tokens, self._kept.total)
        return entry._replace(start=stop - entry.tokens)

    def plan_write(self, entries: list[ScheduledSequence]) -> Write:
        """Return which rows are kept, and where."""
        block_tokens, device = self.store.block_tokens, self.store.keys.device
        if all(tokens == 1 and not padding for _, _, tokens, _, padding in entries):
            slots = [
                self._kept.slot(entry.seq.blocks, entry.start, block_tokens) for entry in entries
            ]
            return Write(to_device(slots, device), None)
        rows: list[int] = []
        slots = []
        row = 0
        for entry in entries:
            positions = self._kept.positions(entry.start + entry.tokens)
            new = positions[positions >= entry.start] if entry.tokens else positions[:0]
            rows += (new - entry.start + row).tolist()
            slots += self._slots(entry, new).tolist()
            row += entry.rows
        return Write(to_device(slots, device), to_device(rows, device))

    def _slots(self, entry: ScheduledSequence, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._kept.slots(entry.seq.blocks, positions, self.store.block_tokens)

    def plan_chunk(self, entry: ScheduledSequence, rows: slice, window: int | None) -> Chunk:
        """Return the attention of a chunk to the kept positions before it and to itself."""
        before = self._kept.positions(entry.start)
        positions = np.arange(entry.start, entry.start + entry.tokens)
        return RollingChunk(
            self.store,
            rows,
            entry.tokens,
            entry.padding,
            to_device(self._slots(entry, before), self.store.keys.device),
            plan_parts(before, positions, self._kept, self.store),
            min(self._kept.sinks, len(before) + len(positions)),
            self._turn(positions) if self._kept.sinks else None,
        )


def sink_turn(
    positions: NDArray[np.int64], kept: KeptTokens, frequencies: Tensor, dtype: torch.dtype
) -> SinkTurn:
    """Return what turns queries at ``positions`` back to their places in the cache.

    ``frequencies`` are the angles of the rotary positions.
    """
    shift = np.maximum(0, positions + 1 - kept.total)
    angles = torch.outer(to_device(shift, frequencies.device).float(), frequencies)
    cos, sin = angles.cos(), angles.sin()
    factors = torch.cat((cos, cos), dim=1), torch.cat((sin, -sin), dim=1)
    turned_cos, turned_sin = (factor.unsqueeze(1).to(dtype) for factor in factors)
    return turned_cos, turned_sin


def with_sink_columns(
    queries: Tensor, keys: Tensor, values: Tensor, sinks: int, turn: SinkTurn
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values whose product has the scores of turned queries at the sinks.

    Queries are [rows, kv heads, group, head dim], keys and values [keys, kv heads, head dim], of
    which the first ``sinks`` are of sinks. The scores at the sinks are computed here, each in two
    columns behind the query, and a sink's key has a one in these columns alone: so one kernel call
    serves all keys. The second column is what rounding took from the first. Values get columns of
    zeros, since fused kernels want one width.
    """
    heads, width = keys.shape[1:]
    turned = rotate(queries.flatten(1, 2), *turn).view_as(queries)
    scores = torch.einsum("qhgd,khd->qhgk", turned.float(), keys[:sinks].float())
    rounded = scores.to(queries.dtype)
    rest = (scores - rounded.float()).to(queries.dtype)
    wide = keys.new_zeros((len(keys), heads, width + 2 * sinks))
    wide[sinks:, :, :width] = keys[sinks:]
    which = torch.eye(sinks, dtype=keys.dtype, device=keys.device)
    wide[:sinks, :, width:] = which.repeat(1, 2).unsqueeze(1)
    return torch.cat((queries, rounded, rest), dim=-1), wide, F.pad(values, (0, 2 * sinks))
