"""Which store of keys and values a computation takes."""

import torch

from servetwin.engine.kv.int8_store import Int8KVStore
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.models.model_config import ModelConfig
from servetwin.policies.protocols import KVLayout
from servetwin.workloads.errors import EngineError

_STORES: dict[str, type[KVStore]] = {"as-dtype": KVStore, "int8": Int8KVStore}


def kv_store(
    kv_format: str,
    config: ModelConfig,
    kv_tokens: int,
    layout: KVLayout,
    block_tokens: int,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> KVStore:
    """Return the store of the format called ``kv_format``; raise ``EngineError`` for no such."""
    if kv_format not in _STORES:
        raise EngineError(f"unknown kv_format {kv_format!r}: use {' or '.join(_STORES)}")
    return _STORES[kv_format](config, kv_tokens, layout, block_tokens, dtype=dtype, device=device)
