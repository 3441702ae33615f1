"""Which attention a computation takes, and those that are torch alone."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from servetwin.engine.attention.native import NativeAttention, native_kernel
from servetwin.engine.attention.step_attention import (
    Attend,
    AttentionBackend,
    DecodeStep,
    Windows,
    additive_mask,
    first_seen,
)
from servetwin.engine.attention.table_attention import TableAttention
from servetwin.engine.kernels.choose_operators import has_triton, require_triton
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.models.device import to_device
from servetwin.policies.batch import ScheduledSequence
from servetwin.workloads.errors import EngineError


class PerSequenceAttention(AttentionBackend):
    """One kernel call per decode: no padding, and gathered keys are read from the CPU's cache."""

    name = "per-sequence"

    def plan_decodes(self, entries: list[ScheduledSequence], window: int | None) -> DecodeStep:
        """Return a loop over the sequences."""
        stops = [entry.start + entry.tokens for entry in entries]
        contexts = [
            self.store.context(entry.seq, stop, first_seen(stop - 1, window))
            for entry, stop in zip(entries, stops, strict=True)
        ]

        def attend(layer: int, queries: Tensor) -> Tensor:
            outputs = [
                F.scaled_dot_product_attention(query, *context(layer))
                for query, context in zip(queries.unsqueeze(2).unbind(), contexts, strict=True)
            ]
            return torch.stack(outputs).squeeze(2)

        return attend


class PaddedAttention(AttentionBackend):
    """One kernel call for all decodes, each context padded to the longest."""

    name = "padded"

    def plan_decodes(self, entries: list[ScheduledSequence], window: int | None) -> DecodeStep:
        """Return one gather and one masked call; padding reads the first slot, which is never
        empty.
        """
        stops = [entry.start + entry.tokens for entry in entries]
        firsts = [first_seen(stop - 1, window) for stop in stops]
        contexts = [stop - first for first, stop in zip(firsts, stops, strict=True)]
        width = -(-max(contexts) // 8) * 8  # CUDA's masked kernels want rows of 16 bytes
        slots = np.empty((len(entries), width), dtype=np.int64)
        for row, entry, first, stop in zip(slots, entries, firsts, stops, strict=True):
            row[: stop - first] = self.store.slots(entry.seq, first, stop)
            row[stop - first :] = row[0]
        device = self.store.keys.device
        beyond = torch.arange(width, device=device) >= to_device(contexts, device)[:, None]
        mask = additive_mask(beyond, self.store.dtype)[:, None, None]
        index = to_device(slots.ravel(), device)

        def padded(rows: Tensor) -> Tensor:
            return rows.view(len(mask), -1, *rows.shape[1:]).transpose(1, 2)

        def attend(layer: int, queries: Tensor) -> Tensor:
            keys, values = map(padded, self.store.read(layer, index))
            return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)

        return attend


class WithoutCache(AttentionBackend):
    """Prompts as long as the contexts: nothing is stored, and nothing is read."""

    name = "without-cache"

    def plan(self, entries: list[ScheduledSequence], decodes: int | None = 0) -> Attend:
        """Prepare ``entries`` that all begin at position 0; none may be a decode."""
        return self.plan_prompts(entries)

    def plan_decodes(self, entries: list[ScheduledSequence], window: int | None) -> DecodeStep:
        """Raise: a decode would read what is not stored."""
        raise AssertionError("there are no decodes without a KV cache")


_NAMES = ("native", PerSequenceAttention.name, PaddedAttention.name, TableAttention.name)


def attention_backend(
    name: str, store: KVStore, group: int, windows: Windows = ()
) -> AttentionBackend:
    """Return the backend called ``name`` for a store and ``group`` query heads to a key head.

    ``auto`` is on CUDA triton where it is installed, else padded; on the CPU native where it can
    be compiled, else per-sequence. Without a KV cache there is one way alone.
    """
    if name == WithoutCache.name:
        return WithoutCache(store, windows)
    if name not in ("auto", *_NAMES):
        raise EngineError(f"unknown attention {name!r}: use auto, {', '.join(_NAMES)}")
    device = store.keys.device
    if name == "auto" and device.type == "cuda":
        name = TableAttention.name if has_triton() else PaddedAttention.name
    if name == TableAttention.name:
        require_triton(f"attention {name!r}", device)
        from servetwin.engine.kernels.decode_attention import attend_decodes

        return TableAttention(store, attend_decodes, windows)
    if name == PaddedAttention.name:
        return PaddedAttention(store, windows)
    kernel = native_kernel(store, group) if name in ("auto", "native") else None
    if kernel is not None:
        return NativeAttention(store, kernel, windows)
    if name == "native":
        raise EngineError(
            "attention 'native' needs a C compiler (cc, or CC in the environment), and keys and "
            "values in float32 or bfloat16 on the CPU; use attention: auto"
        )
    return PerSequenceAttention(store, windows)
