"""Which attention a computation takes."""

from engine.attention.decodes import PaddedAttention, PerSequenceAttention
from engine.attention.step_attention import AttentionBackend
from engine.kv.kv_store import KVStore
from workloads.errors import EngineError

_BACKENDS: dict[str, type[AttentionBackend]] = {
    backend.name: backend for backend in (PerSequenceAttention, PaddedAttention)
}


def attention_backend(name: str, store: KVStore) -> AttentionBackend:
    """Return the backend called ``name``; ``auto``: padded on CUDA, per-sequence on the CPU."""
    if name == "auto":
        name = "padded" if store.keys.is_cuda else "per-sequence"
    if name not in _BACKENDS:
        raise EngineError(f"unknown attention {name!r}: use auto, {' or '.join(_BACKENDS)}")
    return _BACKENDS[name](store)
