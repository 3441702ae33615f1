"""Attention of decodes in C: one call a layer reads all blocks in place, without a gather.

A gather and a kernel call for each sequence took 2.4 times as long (8 sequences of 512 tokens).

``SinkTurn``: cosines and sines [rows, 1, head dim] for ``rotate``: they turn queries back.
``Kernel``: ``decode_attention`` of the C file.
"""

from collections.abc import Callable
from ctypes import c_float, c_int, c_int64, c_void_p
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

from servetwin.engine.attention.step_attention import AttentionBackend, DecodeStep, Windows
from servetwin.engine.attention.table_attention import NO_WINDOW, SpanTables
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.native.compiler import load_functions
from servetwin.policies.batch import ScheduledSequence

SinkTurn = tuple[Tensor, Tensor]
Kernel = Callable[..., None]

_SOURCE = Path(__file__).parents[1] / "native" / "decode_attention.c"
_FORMATS: dict[torch.dtype, dict[str, int]] = {torch.float32: {}, torch.bfloat16: {"BFLOAT16": 1}}


class NativeAttention(AttentionBackend):
    """One C call for all decodes."""

    name = "native"

    def __init__(self, store: KVStore, kernel: Kernel, windows: Windows = ()) -> None:
        super().__init__(store, windows)
        self._kernel = kernel
        self._tables = SpanTables(store)

    def plan_decodes(self, entries: list[ScheduledSequence], window: int | None) -> DecodeStep:
        """Return a step that reads the blocks of all sequences in one call."""
        return self._decodes(entries, window, 0, ())

    def plan_with_sinks(
        self, entries: list[ScheduledSequence], sinks: int, turn: SinkTurn
    ) -> DecodeStep:
        """Return a step in which the first ``sinks`` positions meet queries that are turned."""
        angles = tuple(factor.flatten(1).float().contiguous() for factor in turn)
        return self._decodes(entries, None, sinks, angles)

    def _decodes(
        self,
        entries: list[ScheduledSequence],
        window: int | None,
        sinks: int,
        angles: tuple[Tensor, ...],
    ) -> DecodeStep:
        table = torch.from_numpy(self._tables.of(entries))
        contexts = torch.tensor([start + tokens for _, start, tokens, _, _ in entries])
        scale, threads = self.store.keys.shape[-1] ** -0.5, torch.get_num_threads()
        turn: list[int | None] = [factor.data_ptr() for factor in angles] or [None, None]
        sizes = window or NO_WINDOW, sinks, self.store.span_tokens, len(entries), scale, threads
        arguments = table.data_ptr(), table.shape[1], contexts.data_ptr(), *turn, *sizes
        return partial(self._attend, (table, contexts, *angles), arguments)

    def _attend(
        self, places: tuple[Tensor, ...], arguments: tuple[object, ...], layer: int, queries: Tensor
    ) -> Tensor:
        """Call the kernel; ``places`` are what the ``arguments`` point to."""
        del places
        keys, values = self.store.layers[layer]
        queries = queries.contiguous()
        output = torch.empty_like(queries)
        scales = [scale.data_ptr() for scale in self.store.scales(layer)] or (None, None)
        stored = keys.data_ptr(), values.data_ptr(), *scales
        self._kernel(queries.data_ptr(), *stored, output.data_ptr(), *arguments)
        return output


def native_kernel(store: KVStore, group: int) -> Kernel | None:
    """Return the C function for a store, with ``group`` query heads to a key head.

    None where no compiler is there, or where the kernel does not read such keys and values.
    """
    keys, values = store.keys, store.values
    formats = _FORMATS.get(store.dtype)
    if keys.device.type != "cpu" or formats is None or keys.shape != values.shape:
        return None
    if keys.dtype == torch.int8:
        formats = formats | {"INT8": 1}
    _, _, kv_heads, head_dim = keys.shape
    defines = {"KV_HEADS": kv_heads, "GROUP": group, "HEAD_DIM": head_dim}
    return _compiled(tuple((defines | formats).items()))


@cache
def _compiled(defines: tuple[tuple[str, int], ...]) -> Kernel | None:
    types = [*[c_void_p] * 7, c_int64, *[c_void_p] * 3, *[c_int64] * 3, c_int, c_float, c_int]
    library = load_functions(_SOURCE, {"decode_attention": types}, dict(defines))
    return None if library is None else library.decode_attention
