"""Which attention a computation takes."""

from engine.attention.decodes import PaddedAttention, PerSequenceAttention
from engine.attention.native import NativeAttention, native_kernel
from engine.attention.step_attention import AttentionBackend, Windows
from engine.kv.kv_store import KVStore
from workloads.errors import EngineError

_NAMES = ("native", PerSequenceAttention.name, PaddedAttention.name)


def attention_backend(
    name: str, store: KVStore, group: int, windows: Windows = ()
) -> AttentionBackend:
    """Return the backend called ``name`` for a store and ``group`` query heads to a key head.

    ``auto`` is padded on CUDA; on the CPU native where it can be compiled, else per-sequence.
    """
    if name not in ("auto", *_NAMES):
        raise EngineError(f"unknown attention {name!r}: use auto, {', '.join(_NAMES)}")
    if name == PaddedAttention.name or (name == "auto" and store.keys.is_cuda):
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
