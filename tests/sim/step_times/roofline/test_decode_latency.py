"""Decode as memory over bandwidth: the lecture's table to its last digit, and what it implies."""

from dataclasses import astuple
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.shipped import shipped_models
from servetwin.sim.step_times.roofline.decode_latency import (
    decode_latency,
    ideal_deployment,
    most_tokens_per_s,
    with_kv_heads,
)
from servetwin.workloads.errors import PolicyError

LLAMA_13B = find_model("llama-2-13b")
H100 = find_hardware("h100")


@pytest.mark.parametrize(
    ("batch", "kv_heads", "params", "memory", "latency_ms", "tokens_per_s", "fits"),
    [
        (1, 40, 13_015_449_600, 26_869_760_000, 8.0208239, 124.6755, True),
        (64, 40, 13_015_449_600, 79_717_990_400, 23.7964150, 2689.4807, True),
        (256, 40, 13_015_449_600, 240_779_264_000, 71.8744072, 3561.7685, False),
        (64, 8, 11_337_728_000, 33_412_874_240, 9.9739923, 6416.6883, True),
        (256, 8, 11_337_728_000, 65_625_128_960, 19.5895907, 13068.1648, True),
    ],
)
def test_llama_2_13b_on_an_h100(
    batch: int, kv_heads: int, params: int, memory: int, latency_ms: float, tokens_per_s: float,
    fits: bool,
) -> None:  # fmt: skip
    deployment = ideal_deployment(with_kv_heads(LLAMA_13B, kv_heads), H100)
    row = decode_latency(deployment, batch, 1024)
    assert (row.batch, row.kv_heads, row.fits) == (batch, kv_heads, fits)
    assert (row.params, row.memory_bytes, row.read_bytes) == (params, memory, memory)
    assert round(row.latency_s * 1e3, 7) == latency_ms
    assert round(row.tokens_per_s, 4) == tokens_per_s


def test_one_sequence_makes_124_6755_tokens_a_second_to_seven_digits() -> None:
    row = decode_latency(ideal_deployment(LLAMA_13B, H100), 1, 1024)
    assert format(row.tokens_per_s, ".7g") == "124.6755"


def test_throughput_tends_to_bandwidth_over_the_kv_of_one_sequence() -> None:
    deployment = ideal_deployment(LLAMA_13B, H100)
    limit = most_tokens_per_s(deployment, 1024)
    assert round(limit, 2) == 3993.51
    assert decode_latency(deployment, 100_000, 1024).tokens_per_s == pytest.approx(limit, rel=1e-3)


@pytest.mark.parametrize("name", shipped_models())
def test_a_bigger_batch_is_slower_and_makes_more(name: str) -> None:
    """Latency up, throughput up, for memory alone and with compute; never beyond the limit."""
    deployment = ideal_deployment(find_model(name), H100)
    rows = [decode_latency(deployment, batch, 512) for batch in (1, 2, 4, 8, 32, 64, 256, 1024)]
    assert all(a.latency_s < b.latency_s for a, b in pairwise(rows))
    assert all(a.roofline_s < b.roofline_s for a, b in pairwise(rows))
    assert all(a.tokens_per_s < b.tokens_per_s for a, b in pairwise(rows))
    assert all(row.tokens_per_s < most_tokens_per_s(deployment, 512) for row in rows)


@given(st.integers(1, 512), st.integers(1, 8192), st.sampled_from([1, 2, 4, 5, 8, 10, 20, 40]))
def test_fewer_kv_heads_are_never_slower_nor_faster_than_their_bytes(
    batch: int, context: int, heads: int
) -> None:
    plain = decode_latency(ideal_deployment(LLAMA_13B, H100), batch, context)
    shared = ideal_deployment(with_kv_heads(LLAMA_13B, heads), H100)
    grouped = decode_latency(shared, batch, context)
    assert 1 <= plain.latency_s / grouped.latency_s <= 40 / heads
    bytes_ratio = plain.memory_bytes / grouped.memory_bytes
    assert plain.latency_s / grouped.latency_s == pytest.approx(bytes_ratio)


def test_compute_is_hidden_until_it_is_not() -> None:
    """Less the embedding it does not read, plus the KV it writes, the step with its compute is
    the same; past the ridge it is the longer."""
    deployment = ideal_deployment(LLAMA_13B, H100)
    row = decode_latency(deployment, 1, 1024)
    apart = (5120 * 32_000 * 2 - 819_200) / 3.35e12
    assert row.latency_s - row.roofline_s == pytest.approx(apart)
    many = decode_latency(deployment, 2048, 1)
    assert many.roofline_s > many.latency_s


def test_only_the_experts_that_are_touched_are_read() -> None:
    deployment = ideal_deployment(find_model("mixtral-8x7b"), H100)
    one, many = (decode_latency(deployment, batch, 128) for batch in (1, 1000))
    untouched = 6 * 176_160_768 * 32 * 2
    assert one.memory_bytes - one.read_bytes == pytest.approx(untouched)
    assert many.read_bytes == pytest.approx(many.memory_bytes)


@pytest.mark.parametrize(
    ("model", "heads", "reason"),
    [
        ("llama-2-13b", 7, "40 heads of llama-2-13b cannot share 7 KV heads"),
        ("llama-2-13b", 0, "cannot share 0"),
        ("llama-2-13b", 80, "cannot share 80"),
        ("mamba-2.8b", 8, "mamba-2.8b has no KV heads"),
        ("deepseek-v2", 8, "deepseek-v2 has no KV heads"),
    ],
)
def test_kv_heads_that_cannot_be(model: str, heads: int, reason: str) -> None:
    with pytest.raises(PolicyError, match=reason):
        with_kv_heads(find_model(model), heads)


def test_models_without_kv_heads_have_a_row_too() -> None:
    row = decode_latency(ideal_deployment(find_model("mamba-2.8b"), H100), 4, 10**6)
    assert row.kv_heads is None
    assert all(value is None or value > 0 for value in astuple(row))
