"""Attention of a prompt chunk to a window, and to sinks where there are some, a part at a time.

A part of the chunk's rows meets the keys in their windows alone, so the time of a long chunk grows
with its length times the window.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from servetwin.engine.attention.chunk_kernels import additive_mask
from servetwin.engine.attention.sinks import SinkTurn, with_sink_columns
from servetwin.engine.kv.kept_tokens import KeptTokens
from servetwin.engine.kv.kv_store import KVStore, heads_first

LEAST_PART_ROWS = 64
"""Below this, the calls of a kernel cost more than the hidden keys that they leave out."""


@dataclass(frozen=True, slots=True)
class RollingPart:
    """Some rows of a chunk, and the keys that one of them or more sees."""

    rows: slice
    sinks: int
    """The first keys, which every row sees that does not come before them."""
    window: slice
    """Further keys, among those that are kept before the chunk and its own."""
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


@dataclass(frozen=True, slots=True)
class RollingChunk:
    """Rows of a sequence, and the kept positions before them."""

    rows: slice
    padding: int
    before: Tensor
    """Slots of what is kept before the chunk."""
    parts: list[RollingPart]
    sinks: int
    """How many of the keys, the first ones, are of sinks."""
    turn: SinkTurn | None
    """What turns each query back to its place in the cache."""

    def __call__(
        self, queries: Tensor, context: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Attend: queries [rows, kv heads, group, head dim] to the same, with padding behind."""
        if not len(queries):
            return queries.new_zeros((self.padding, *queries.shape[1:]))
        keys, values = (torch.cat(pair) for pair in zip(context, own, strict=True))
        width = queries.shape[3]
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
