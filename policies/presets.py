"""Named bundles of policies that imitate known servers, each with its source.

A preset sets policies, not sizes: memory, batch size and model length stay those of the profile,
but for the limits that are part of the imitated design.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workloads.errors import PolicyError, did_you_mean


@dataclass(frozen=True, slots=True)
class Preset:
    """``policies`` are settings of ``PolicyConfig``, ``cluster`` those of ``ClusterConfig``."""

    imitates: str
    source: str
    policies: Mapping[str, Any]
    cluster: Mapping[str, Any] = field(default_factory=dict)


_NO_BUDGET = 1 << 20

PRESETS: dict[str, Preset] = {
    "fastertransformer": Preset(
        "static batches behind a batching delay, the longest length reserved for each request",
        "Orca (OSDI 2022), section 2; Triton's dynamic batcher",
        {"batching": "static", "kv": "contiguous", "reservation": "max", "wait_limit_s": 0.05},
    ),
    "orca": Preset(
        "iteration-level scheduling, whole prompts beside decodes, regions reserved whole",
        "Orca (OSDI 2022), section 4; 'Orca (Max)' of vLLM (SOSP 2023), section 6.1",
        {
            "batching": "continuous",
            "kv": "contiguous",
            "reservation": "max",
            "token_budget": _NO_BUDGET,
        },
    ),
    "vllm-v0": Preset(
        "new prompts pause the decodes; blocks of 16, a watermark of 1 %, recompute of the newest",
        "vLLM (SOSP 2023), sections 4.3 to 4.5; vLLM 0.6 documentation",
        {
            "batching": "prefill-first",
            "kv": "paged",
            "block_tokens": 16,
            "watermark": 0.01,
            "preemption": "recompute",
            "victim": "newest",
        },
    ),
    "vllm-v1": Preset(
        "chunked prefill under one token budget, automatic prefix caching by block hash, LRU",
        "vLLM V1 blog (January 2025) and documentation",
        {
            "batching": "chunked",
            "kv": "paged",
            "block_tokens": 16,
            "prefix_cache": True,
            "prefix_index": "hash",
        },
    ),
    "sarathi": Preset(
        "stall-free batches: all decodes, then pieces of prompts up to 512 rows",
        "Sarathi-Serve (OSDI 2024), section 4",
        {"batching": "chunked", "kv": "paged", "block_tokens": 16, "token_budget": 512},
    ),
    "sglang": Preset(
        "prefill first, radix-tree prefix cache of single tokens, longest shared prefix first",
        "SGLang (NeurIPS 2024), section 3",
        {
            "batching": "prefill-first",
            "kv": "paged",
            "block_tokens": 1,
            "prefix_cache": True,
            "prefix_index": "radix",
            "queue_order": "longest-prefix",
            "token_budget": 8192,
        },
    ),
    "tgi": Preset(
        "prefill first under a prompt budget of 4,096; a request enters when all of it fits",
        "Text Generation Inference, launcher reference (max-batch-prefill-tokens, "
        "max-batch-total-tokens, max-concurrent-requests)",
        {
            "batching": "prefill-first",
            "kv": "paged",
            "block_tokens": 1,
            "admission": "full",
            "token_budget": 4096,
            "queue_limit": 128,
        },
    ),
    "tensorrt-llm": Preset(
        "in-flight batching without eviction (GUARANTEED_NO_EVICT), blocks of 64 with reuse",
        "TensorRT-LLM documentation: scheduler policies and KV cache reuse",
        {
            "batching": "continuous",
            "kv": "paged",
            "block_tokens": 64,
            "admission": "full",
            "prefix_cache": True,
            "prefix_index": "radix",
            "token_budget": 8192,
        },
    ),
    "deepspeed-fastgen": Preset(
        "Dynamic SplitFuse: every forward pass filled to a fixed size with pieces of prompts",
        "DeepSpeed-FastGen (2024), section 3",
        {"batching": "chunked", "kv": "paged", "block_tokens": 64, "token_budget": 768},
    ),
    "lightllm": Preset(
        "memory by the single token, prefill first, admission by the length that may come",
        "LightLLM documentation: token attention and router",
        {
            "batching": "prefill-first",
            "kv": "paged",
            "block_tokens": 1,
            "admission": "full",
            "token_budget": 8192,
        },
    ),
    "lmdeploy": Preset(
        "TurboMind's persistent batch: whole prompts join running decodes, blocks of 64",
        "LMDeploy documentation: TurboMind architecture",
        {
            "batching": "continuous",
            "kv": "paged",
            "block_tokens": 64,
            "victim": "newest",
            "token_budget": 8192,
        },
    ),
    "llama.cpp": Preset(
        "four slots with a fixed share of the context each, prompts in pieces of 2,048",
        "llama.cpp server README (--parallel, --cont-batching, --batch-size)",
        {
            "batching": "chunked",
            "kv": "contiguous",
            "reservation": "max",
            "max_seqs": 4,
            "token_budget": 2048,
        },
    ),
    "mlc-llm": Preset(
        "prefill first in pieces of 2,048, pages of 16, radix prefix cache",
        "MLC LLM documentation: engine configuration (prefill_chunk_size, prefix_cache_mode)",
        {
            "batching": "prefill-first",
            "kv": "paged",
            "block_tokens": 16,
            "prefix_cache": True,
            "prefix_index": "radix",
            "token_budget": 2048,
        },
    ),
    "openllm": Preset(
        "a vLLM back end with its defaults of 2024: prefill first, no prefix cache",
        "OpenLLM README 0.4 (continuous batching through vLLM)",
        {"batching": "prefill-first", "kv": "paged", "block_tokens": 16, "watermark": 0.01},
    ),
    "paddle": Preset(
        "dynamic insertion: slots refilled as their members end, memory reserved whole",
        "PaddlePaddle deployment talk on dynamic insertion; FastDeploy documentation",
        {"batching": "insertion", "kv": "contiguous", "reservation": "max"},
    ),
    "distserve": Preset(
        "prompts and decodes on servers of their own, FCFS, keys and values over a link",
        "DistServe (OSDI 2024), sections 3 and 4",
        {"batching": "continuous", "kv": "paged", "block_tokens": 16},
        {"prefill_replicas": 1, "decode_replicas": 1, "router": "least-tokens"},
    ),
    "splitwise": Preset(
        "prompt and token pools, requests sent to the shortest queue, KV over InfiniBand",
        "Splitwise (ISCA 2024), section 4",
        {"batching": "continuous", "kv": "paged", "block_tokens": 16},
        {
            "prefill_replicas": 1,
            "decode_replicas": 1,
            "router": "least-tokens",
            "decode_router": "least-outstanding",
        },
    ),
}


def find_preset(name: str) -> Preset:
    """A preset by its name.

    Raises ``PolicyError`` with the nearest known name.
    """
    if name in PRESETS:
        return PRESETS[name]
    hint = did_you_mean(name, PRESETS, f"known are {', '.join(sorted(PRESETS))}")
    raise PolicyError(f"preset: unknown preset {name!r}; {hint}")
