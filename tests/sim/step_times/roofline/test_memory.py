"""Bytes of weights, keys and values, and how many sequences fit beside them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.step_times.roofline.memory import memory_sizes

LLAMA = find_model("llama-2-7b")


@pytest.mark.parametrize(
    ("element_bytes", "per_token", "sequence"),
    [(2, 512 * 2**10, 16 * 2**30), (4, 2**20, 32 * 2**30)],
    ids=["fp16", "fp32"],
)
def test_kv_of_llama_2_7b(element_bytes: int, per_token: int, sequence: int) -> None:
    """262,144 elements a token, 2 L d; not 512 K, nor 2 MB, as sometimes printed."""
    assert LLAMA.kv_elements_per_token() == 2 * 32 * 4096 == 262_144
    sizes = memory_sizes(LLAMA, 32_768, kv_element_bytes=element_bytes)
    assert (sizes.kv_bytes_per_token, sizes.sequence_bytes) == (per_token, sequence)


def test_kv_of_a_sequence_of_llama_2_13b() -> None:
    """S K H L 2 at two bytes, and all memory of a batch: B of these beside 2 P."""
    model = find_model("llama-2-13b")
    assert memory_sizes(model, 1024).sequence_bytes == 1024 * 40 * 128 * 40 * 2 * 2 == 838_860_800
    assert memory_sizes(model, 1024).weight_bytes == 2 * 13_015_449_600


@given(st.integers(1, 10**5), st.integers(0, 10**5))
def test_kv_grows_with_the_context_and_never_beyond_a_window(context: int, further: int) -> None:
    windowed, plain = find_model("mistral-7b"), find_model("llama-3-8b")
    for model in (windowed, plain):
        here, there = (memory_sizes(model, c).sequence_bytes for c in (context, context + further))
        assert here <= there
    assert memory_sizes(windowed, context).sequence_bytes == min(context, 4096) * 131_072
    assert memory_sizes(plain, context).sequence_bytes == context * 131_072


def test_states_do_not_grow() -> None:
    model = find_model("mamba-2.8b")
    short, long = (memory_sizes(model, context) for context in (1, 10**6))
    assert short == long
    assert long.kv_bytes_per_token == 0
    assert long.sequence_bytes == long.state_bytes > 0


def test_sequences_fit_beside_the_weights_or_not_at_all() -> None:
    sizes = memory_sizes(LLAMA, 4096)
    assert sizes.sequences_in(80e9) == (80e9 - 2 * 6_738_149_376) // 2**31 == 30
    assert sizes.sequences_in(sizes.weight_bytes + 2**31) == 1
    assert sizes.sequences_in(13e9) == 0
