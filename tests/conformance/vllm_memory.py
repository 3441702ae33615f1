"""vLLM's layout of KV memory, without a model. Run by the interpreter that has vLLM.

It reads a JSON object a line, with the layers of a model as (what they keep, its tokens, elements,
how many there are), and writes what vLLM makes of it: [tokens of a block, blocks, tokens].
"""

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.platforms.interface import Platform
from vllm.v1.core.kv_cache_utils import get_kv_cache_capacity, get_kv_cache_configs
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)

from tests.conformance.vllm_server import MODEL

_HALF = torch.bfloat16


_BACKEND = SimpleNamespace(
    customize_spec=lambda spec: spec, get_supported_kernel_block_sizes=lambda: [16]
)
"""An attention kernel that reads blocks of 16 tokens."""
_PAGING: Any = type(
    "_Paging", (Platform,), {"_find_non_ssm_backends": classmethod(lambda cls, config: [_BACKEND])}
)


def _aligned(config: VllmConfig, per_token: int, state: int) -> None:
    """Let vLLM choose the tokens of a block so that it holds a state."""
    from vllm.model_executor.models import ModelRegistry

    states = SimpleNamespace(
        get_mamba_state_shape_from_config=lambda config: ((state,),),
        get_mamba_state_dtype_from_config=lambda config: (_HALF,),
    )
    model = SimpleNamespace(
        use_mla=False, dtype=_HALF, architecture="", get_num_kv_heads=lambda parallel: 1,
        get_head_size=lambda: per_token // 2,
    )  # fmt: skip
    registry = type(ModelRegistry)
    resolve = registry.resolve_model_cls
    registry.resolve_model_cls = lambda *args, **more: (states, "")
    view = SimpleNamespace(
        cache_config=config.cache_config, model_config=model, parallel_config=None,
    )  # fmt: skip
    try:
        _PAGING._align_hybrid_block_size(view, _BACKEND)
    finally:
        registry.resolve_model_cls = resolve


def _spec(kind: str, tokens: int, elements: int, cache: CacheConfig) -> KVCacheSpec:
    if kind == "state":
        return MambaSpec(
            block_size=cache.mamba_block_size or cache.block_size, shapes=((elements,),),
            dtypes=(_HALF,), page_size_padded=cache.mamba_page_size_padded,
            mamba_cache_mode="align",
        )  # fmt: skip
    attention: dict[str, Any] = {
        "block_size": cache.block_size, "num_kv_heads": 1, "head_size": elements // 2,
        "dtype": _HALF,
    }  # fmt: skip
    if kind == "window":
        return SlidingWindowSpec(sliding_window=tokens, **attention)
    if kind == "chunk":
        return ChunkedLocalAttentionSpec(attention_chunk_size=tokens, **attention)
    return FullAttentionSpec(**attention)


def memory(asked: dict[str, Any], model: ModelConfig) -> list[int]:
    """Return (tokens of a block, blocks, tokens) of a model in ``room_bytes``."""
    model.max_model_len = asked["longest"]
    rows = asked["rows"]
    config = VllmConfig(
        model_config=model,
        scheduler_config=SchedulerConfig(asked["longest"], False, max_num_batched_tokens=rows),
        cache_config=CacheConfig(
            block_size=16, enable_prefix_caching=True, mamba_cache_mode="align"
        ),
    )
    config.cache_config.kv_cache_layout = "LBNHC"  # that of FlashAttention
    layers: list[tuple[str, int, int, int]] = asked["layers"]
    per_token = max(elements for kind, _, elements, _ in layers if kind != "state")
    if states := [elements for kind, _, elements, _ in layers if kind == "state"]:
        _aligned(config, per_token, max(states))
    specs = {
        f"layer {place}.{number}": _spec(kind, tokens, elements, config.cache_config)
        for place, (kind, tokens, elements, count) in enumerate(layers)
        for number in range(count)
    }
    (found,) = get_kv_cache_configs(config, [specs], [asked["room_bytes"]])
    tokens, _ = get_kv_cache_capacity(config, found)
    return [config.cache_config.block_size, found.num_blocks, tokens]


def main() -> None:
    """Answer each model with its memory."""
    answers = sys.stdout
    sys.stdout = sys.stderr
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(MODEL))
        model = ModelConfig(model=folder, skip_tokenizer_init=True)
        for line in sys.stdin:
            print(json.dumps(memory(json.loads(line), model)), file=answers, flush=True)


if __name__ == "__main__":
    main()
