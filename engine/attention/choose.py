"""Which attention a computation takes."""

from servetwin.engine.attention.native import NativeAttention, native_kernel
from servetwin.engine.attention.score_rules import ScoreRules
from servetwin.engine.attention.step_attention import AttentionBackend, Windows
from servetwin.engine.attention.table_attention import TableAttention
from servetwin.engine.kernels.choose_operators import has_triton, require_triton
from servetwin.engine.kv.kv_store import KVStore
from servetwin.workloads.errors import EngineError

WITHOUT_CACHE = "without-cache"
_NAMES = ("native", AttentionBackend.name, TableAttention.name)


def attention_backend(
    name: str, store: KVStore, group: int, windows: Windows = (), rules: ScoreRules | None = None
) -> AttentionBackend:
    """Return the backend called ``name`` for a store and ``group`` query heads to a key head.

    ``auto`` is on CUDA triton where it is installed; on the CPU native where it can be compiled;
    else, and for score ``rules``, per-sequence. Without a KV cache there is one way alone.
    """
    if name == WITHOUT_CACHE:
        return AttentionBackend(store, windows, rules, cached=False)
    if name not in ("auto", *_NAMES):
        raise EngineError(f"unknown attention {name!r}: use auto, {', '.join(_NAMES)}")
    if rules is not None:
        if name not in ("auto", AttentionBackend.name):
            raise EngineError(
                f"attention {name!r} does not know how {rules.model.name} scores: use auto"
            )
        return AttentionBackend(store, windows, rules)
    device = store.keys.device
    if name == TableAttention.name or (name == "auto" and device.type == "cuda" and has_triton()):
        require_triton(f"attention {TableAttention.name!r}", device)
        from servetwin.engine.kernels.decode_attention import attend_decodes

        return TableAttention(store, attend_decodes, windows)
    kernel = native_kernel(store, group) if name in ("auto", "native") else None
    if kernel is not None:
        return NativeAttention(store, kernel, windows)
    if name == "native":
        raise EngineError(
            "attention 'native' needs a C compiler (cc, or CC in the environment), and keys and "
            "values in float32 or bfloat16 on the CPU; use attention: auto"
        )
    return AttentionBackend(store, windows)
