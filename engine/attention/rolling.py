"""Attention over a KV memory that forgets: a sliding window, with sinks or without.

A query sees the positions that are kept when its own has been stored. Positions are absolute in a
window (Mistral 7B, 2023); ``engine.attention.sinks`` says where a query meets sinks.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from servetwin.engine.attention.native import NativeAttention
from servetwin.engine.attention.rolling_chunk import RollingChunk, plan_parts
from servetwin.engine.attention.sinks import SinkTurn, sink_turn
from servetwin.engine.attention.step_attention import Attend, AttentionBackend, DecodeStep, Write
from servetwin.engine.kv.kept_tokens import KeptTokens
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.models.device import to_device
from servetwin.policies.batch import ScheduledSequence


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
        return _RollingStep(self.store, self._write(entries), decodes, attend, chunks)

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

    def _write(self, entries: list[ScheduledSequence]) -> Write:
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

    def _chunk(self, entry: ScheduledSequence, row: int) -> RollingChunk:
        before = self._kept.positions(entry.start)
        own = np.arange(entry.start, entry.start + entry.tokens)
        return RollingChunk(
            slice(row, row + entry.tokens),
            entry.padding,
            to_device(self._slots(entry, before), self.store.keys.device),
            plan_parts(before, own, self._kept, self.store),
            min(self._kept.sinks, len(before) + len(own)),
            self._turn(own) if self._kept.sinks else None,
        )


@dataclass(frozen=True, slots=True)
class _RollingStep:
    """Reads what a chunk's own rows may overwrite, writes, then attends."""

    store: KVStore
    write: Write
    decodes: int
    attend_decodes: DecodeStep | None
    chunks: list[RollingChunk]

    def __call__(
        self, layer: int, queries: Tensor, keys: Tensor | None, values: Tensor | None
    ) -> Tensor:
        assert keys is not None
        assert values is not None
        before = [self.store.read(layer, chunk.before) for chunk in self.chunks]
        self.write(self.store, layer, keys, values)
        grouped = queries.view(len(queries), keys.shape[1], -1, queries.shape[2])
        outputs = []
        if self.attend_decodes is not None:
            outputs.append(self.attend_decodes(layer, grouped[: self.decodes]))
        for chunk, context in zip(self.chunks, before, strict=True):
            own = self.store.as_read(keys[chunk.rows], values[chunk.rows])
            outputs.append(chunk(grouped[chunk.rows], context, own))
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs)).flatten(1)
