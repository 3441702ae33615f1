"""Named frameworks, and how far they are above plain batches."""

import pytest

from servetwin.policies.presets import find_preset
from servetwin.sim.techniques.setup import with_eager_kernels
from tests.support.published.frameworks import SERVERS
from tests.support.serving_techniques import equal_kernels, gain_over_static

pytestmark = pytest.mark.slow

NAMED = {
    "vllm-v0": ("prefill-first", "paged"),
    "vllm-v1": ("unified", "paged"),
    "tgi": ("prefill-first", "paged"),
    "llama.cpp": ("chunked", "contiguous"),
    "mlc-llm": ("prefill-first", "paged"),
    "tensorrt-llm": ("continuous", "paged"),
    "deepspeed-fastgen": ("chunked", "paged"),
    "openllm": ("prefill-first", "paged"),
    "fastertransformer": ("static", "contiguous"),
    "hf-transformers": ("static", "contiguous"),
    "deepspeed-inference": ("static", "contiguous"),
    "fastdeploy": ("chunked", "paged"),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_named_framework_batches_and_keeps_memory_in_its_way(name: str) -> None:
    policies = find_preset(name).policies
    assert (policies["batching"], policies["kv"]) == NAMED[name]


ON_SERVERS = pytest.mark.parametrize(("model", "hardware"), SERVERS)


@ON_SERVERS
def test_paged_continuous_batching_is_an_order_of_magnitude_above_plain_batches(
    model: str, hardware: str
) -> None:
    """vLLM's launch post: 14 to 24 times; 8.5 to 15, six tenths of it, for three answers."""
    one, three = (
        gain_over_static(model, hardware, answers, with_eager_kernels) for answers in (1, 3)
    )
    assert 8 < one < 30
    assert 0.6 * 8 < three < one


@ON_SERVERS
def test_batching_and_memory_alone_give_half_an_order(model: str, hardware: str) -> None:
    """Equal kernels: what is left is idle slots, padding, and regions of the longest length."""
    one, three = (gain_over_static(model, hardware, answers, equal_kernels) for answers in (1, 3))
    assert one > three > 10**0.5
