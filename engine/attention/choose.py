"""Which attention a computation takes."""

from servetwin.engine.attention.decodes import PaddedAttention, PerSequenceAttention
from servetwin.engine.attention.native import NativeAttention, native_kernel
from servetwin.engine.attention.step_attention import AttentionBackend, Windows
from servetwin.engine.attention.table_attention import TableAttention
from servetwin.engine.attention.without_cache import WithoutCache
from servetwin.engine.kernels.triton_here import has_triton, require_triton
from servetwin.engine.kv.kv_store import KVStore
from servetwin.workloads.errors import EngineError

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
