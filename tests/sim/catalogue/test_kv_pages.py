"""The groups of models with windows, chunks or states, and the blocks that fit."""

import pytest

from servetwin.policies.kv.kv_groups import blocks_per_request, parse_groups
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.kv_pages import kv_pages

ROOM_BYTES, ROWS = 40 * 10**9, 2 * 8192


@pytest.mark.parametrize(
    ("name", "groups", "block_tokens", "blocks", "tokens"),
    [
        ("gpt-oss-20b", "window:128,full", 16, 101725, 1445344),
        ("gpt-oss-120b", "window:128,full", 16, 67816, 963553),
        ("gemma-3-27b", "6xwindow:1024,full", 16, 30517, 271623),
        ("gemma-3-1b", "6xwindow:512,full", 16, 610351, 2383788),
        ("gemma-2-9b", "window:4096,full", 16, 14532, 116142),
        ("mistral-7b", "window:4096", 16, 19073, 487887),
        ("qwen3-next-80b-a3b", "3xstate,full", 544, 2991, 1587191),
        ("qwen3.5-27b", "3xstate,full", 784, 778, 586057),
        ("qwen3.5-397b-a17b", "3xstate,full", 2096, 621, 1179648),
        ("nemotron-h-56b-base-8k", "6xstate,full", 2080, 469, 240128),
        ("nemotron-3-nano-30b-a3b", "4xstate,full", 2096, 3106, 5733938),
        ("llama-4-scout-17b-16e", "3xchunk:8192,full", 16, 50862, 520826),
        ("step-3.7-flash", "full,3xwindow:512", 16, 50862, 458688),
        ("exaone-4.0-32b", "3xwindow:4096,full", 16, 38146, 415444),
        ("llama-3-8b", "full", 16, 19073, 305168),
        ("mamba-2.8b", "state", 16, 3814, None),
    ],
)
def test_the_memory_is_what_vllm_computes(
    name: str, groups: str, block_tokens: int, blocks: int, tokens: int | None
) -> None:
    """vLLM 0.32, ``get_kv_cache_configs`` and ``get_kv_cache_capacity``: 40 GB, bf16, contexts of
    131,072 or the model's, two batches of 8,192 rows in flight, prefix cache on."""
    model = find_model(name)
    pages = kv_pages(model, 16, 2.0, 2.0)
    assert (pages.groups, pages.block_tokens) == (groups, block_tokens)
    assert ROOM_BYTES // pages.block_bytes == blocks
    longest = min(model.max_model_len, 131_072)
    each = blocks_per_request(parse_groups(groups, block_tokens, True), longest, ROWS, block_tokens)
    assert tokens in (None, blocks * longest // each)
