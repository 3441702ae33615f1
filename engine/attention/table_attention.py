"""Attention of decodes by one kernel that reads block tables: nothing is gathered."""

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from servetwin.engine.attention.block_tables import (
    SEES_ALL,
    BlockTables,
    DecodeKernel,
    SpanTables,
    StoredHeads,
    Visibility,
)
from servetwin.engine.attention.decode_rows import DecodeRows
from servetwin.engine.attention.step_attention import Attend, AttentionBackend, DecodeStep, Windows
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.models.device import to_device
from servetwin.policies.batch import ScheduledSequence


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
        visible = Visibility(window) if window else SEES_ALL
        return _TableStep(self.store, self._kernel, tables, visible)


@dataclass(frozen=True, slots=True)
class _TableStep:
    store: KVStore
    kernel: DecodeKernel
    tables: BlockTables
    visible: Visibility

    def __call__(self, layer: int, queries: Tensor) -> Tensor:
        stored = StoredHeads(*self.store.layers[layer], *self.store.scales(layer))
        return self.kernel(queries, stored, self.tables, self.visible)
