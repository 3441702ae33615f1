"""Arithmetic intensity: the published tables, digit by digit, and the laws behind them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.catalogue.layers import Attention
from servetwin.sim.step_times.roofline.decode_latency import devices_for, ideal_deployment
from servetwin.sim.step_times.roofline.matrix_products import (
    KINDS,
    Kind,
    Product,
    intensity_flops_per_element,
    intensity_table,
    matmul_rows_at,
    model_products,
    product,
    projections,
)
from servetwin.sim.step_times.roofline.operators import decode_attention, prefill_attention
from tests.support.formulas.intensities import (
    attention_intensity,
    attention_limit_flops_per_element,
    gated_ffn_intensity,
    matmul_intensity,
    per_second,
)

LLAMA = find_model("llama-2-7b")
MIXER = LLAMA.attentions()[0]
H100, A100 = find_hardware("h100"), find_hardware("a100-80gb")
COUNTS = st.integers(1, 10**5)
WIDTHS = st.integers(1, 10**5)

ROWS = (1, 2, 4, 8, 128, 512, 4096)
KEYS = (128, 512, 4096, 32_000)
PROJECTIONS = (1.999024, 3.996098, 7.984405, 15.93774, 240.9412, 819.2, 2730.667)
FFN = (1.999330, 3.997322, 7.989295, 15.95724, 245.4746, 874.0844, 3453.490)
ATTENTION = {
    128: (1.969231, 3.878788, 7.529412, 14.22222, 85.33333),
    512: (1.980658, 3.923372, 7.699248, 14.84058, 113.7778, 170.6667),
    4096: (1.984016, 3.936569, 7.750237, 15.03119, 126.0308, 199.8049, 240.9412),
    32_000: (1.984435, 3.938219, 7.756636, 15.05528, 127.7445, 204.1467, 247.2833),
}
PRINTED = {
    (kind, n, length): cell
    for length in KEYS
    for kind, row in zip(KINDS, (PROJECTIONS, ATTENTION[length], FFN), strict=True)
    for n, cell in zip(ROWS, row, strict=False)
    if n <= length
}


def cells(in_memory: bool = True) -> dict[tuple[Kind, int, int], float]:
    return intensity_table(LLAMA, ROWS, KEYS, in_memory)


def products(rows: int, keys: int, kind: Kind, in_memory: bool = True) -> list[Product]:
    return model_products(LLAMA, rows, keys, in_memory)[kind]


def test_all_75_printed_cells_are_reproduced() -> None:
    assert len(PRINTED) == 75
    assert cells() == pytest.approx(PRINTED, rel=1e-6)


@pytest.mark.parametrize(("rows", "printed"), [(512, 113.78), (4096, 126.03)])
def test_the_row_of_128_keys_would_continue(rows: int, printed: float) -> None:
    here = intensity_flops_per_element(products(rows, 128, "attention"))
    assert round(here, 2) == printed


@pytest.mark.parametrize(("n", "length"), [(1, 128), (8, 512), (4096, 4096)])
def test_operators_are_those_of_the_table(n: int, length: int) -> None:
    """FLOPs, elements, how many a layer, intensity: item by item, d = 4096, h = 32, f = 11008."""
    d, h, f, layers = 4096, 32, 11008, 32
    for cast in products(n, length, "projections"):
        assert (cast.flops, cast.elements) == (2 * n * d**2, (2 * n + d) * d)
        assert cast.flops / cast.elements == pytest.approx(2 * d / (2 + d / n))
    for act in products(n, length, "attention"):
        assert act.flops == 2 * n * d * length / h
        assert act.elements == (n + length) * d / h + n * length
        limit = 2 * d * length / (d * length / n + d + length * h)
        assert act.flops / act.elements == pytest.approx(limit)
    for fed in products(n, length, "FFN"):
        assert (fed.flops, fed.elements) == (2 * n * d * f, d * (n + f) + n * f)
        limit = 2 * d * f / (d * f / n + d + f)
        assert fed.flops / fed.elements == pytest.approx(limit)
    assert [p.count / layers for p in products(n, length, "projections")] == [1] * 4
    assert [p.count / layers for p in products(n, length, "attention")] == [h] * 2
    assert [p.count / layers for p in products(n, length, "FFN")] == [3]


def test_decode_does_about_two_flops_per_element_whatever_it_attends_to() -> None:
    ones = [cell for (_, n, _), cell in cells().items() if n == 1]
    assert len(ones) == 12
    assert all(2 * 0.98 < cell < 2 for cell in ones)


def test_few_rows_do_about_two_n() -> None:
    few = [
        cell / (2 * n) for (kind, n, _), cell in cells().items() if kind != "attention" and n < 9
    ]
    assert len(few) == 32
    assert all(0.98 < share < 1 for share in few)


def test_attention_with_its_scores_in_memory_has_a_ceiling_of_twice_the_head_size() -> None:
    ceiling = attention_limit_flops_per_element(MIXER.head_dim)
    assert ceiling == 256
    many = intensity_flops_per_element(products(10**7, 10**7, "attention"))
    assert ceiling * (1 - 1e-4) < many < ceiling
    assert intensity_flops_per_element(products(10**7, 10**7, "attention", False)) > 1e6


@given(COUNTS, COUNTS)
def test_scores_on_the_chip_make_it_n_l_over_their_sum(n: int, length: int) -> None:
    """2 n l / (n + l) FLOP/element is n l / (n + l) FLOP/byte at two bytes."""
    per_element = intensity_flops_per_element(products(n, length, "attention", False))
    assert per_element / 2 == pytest.approx(attention_intensity(n, length, LLAMA.width))
    in_memory = intensity_flops_per_element(products(n, length, "attention"))
    assert in_memory < per_element


@given(st.sampled_from([1, 2, 4, 8, 16, 32]), st.integers(1, 64), st.integers(1, 4096))
def test_shared_kv_heads_raise_attention_s_intensity_but_not_its_ceiling(
    kv_heads: int, n: int, length: int
) -> None:
    def of(heads: int) -> float:
        grouped = Attention(heads=32, kv_heads=heads, head_dim=128)
        model = LLAMA.with_mixers(lambda _: grouped)
        return intensity_flops_per_element(model_products(model, n, length)["attention"])

    assert of(32) <= of(kv_heads) < 256


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "expected"),
    [(64, 4096, 11008, 62.6567), (1, 10**7, 10**7, 1.0), (300, 10**12, 10**12, 300.0)],
)
def test_products_at_two_bytes(rows: int, inner: int, columns: int, expected: float) -> None:
    assert matmul_intensity(rows, inner, columns) == pytest.approx(expected, abs=5e-5)


def test_the_batch_that_reaches_the_ridge_is_more_than_the_ridge() -> None:
    ridge = H100.ridge_flops_per_byte()
    assert round(ridge, 4) == 295.2239
    rows = matmul_rows_at(ridge, 4096, 11008)
    assert round(rows, 2) == 327.62
    assert matmul_intensity(rows, 4096, 11008) == pytest.approx(ridge)
    assert matmul_rows_at(ridge, 128, 64) == np.inf


@given(WIDTHS, WIDTHS, st.floats(0.1, 1e4))
def test_no_number_of_rows_gets_beyond_what_is_reached_at_infinity(
    inner: int, columns: int, wanted: float
) -> None:
    rows, many = matmul_rows_at(wanted, inner, columns), 1e15
    if rows > many:
        assert matmul_intensity(many, inner, columns) <= wanted * (1 + 1e-6)
    else:
        assert matmul_intensity(rows, inner, columns) == pytest.approx(wanted, rel=1e-6)


def test_a_gated_ffn_has_the_intensity_of_its_tokens() -> None:
    b, t, d, f = 4, 16, 4096, 11008
    flops, moved = 6 * b * t * d * f, 4 * b * t * d + 4 * b * t * f + 6 * d * f
    assert gated_ffn_intensity(b * t, d, f) == pytest.approx(flops / moved)
    assert gated_ffn_intensity(64, 1e8, 1e8) == pytest.approx(64, rel=1e-4)


@pytest.mark.parametrize(
    ("queries", "keys", "expected"), [(1024, 1024, 512.0), (1, 1024, 1024 / 1025), (1, 1, 0.5)]
)
def test_attention_on_the_chip(queries: int, keys: int, expected: float) -> None:
    assert attention_intensity(queries, keys, 4096) == expected


@given(COUNTS, COUNTS, st.integers(1, 10**4))
def test_batching_leaves_attention_as_it_is(queries: int, keys: int, batch: int) -> None:
    alone = attention_intensity(queries, keys, 4096)
    assert attention_intensity(queries, keys, 4096, batch) == pytest.approx(alone)


@given(st.integers(1, 512), st.integers(1, 32_768))
def test_nor_does_it_move_the_simulator_s_decode_attention(batch: int, context: int) -> None:
    """One FLOP/byte for MHA at two bytes, h / k for grouped heads."""
    for model, expected in ((LLAMA, 1), (find_model("llama-3-8b"), 4)):
        deployment = ideal_deployment(model, H100)
        together = decode_attention(deployment, model.layers[0].mixer, batch * context, 32)
        assert together.flops / together.moved_bytes == pytest.approx(expected)


def test_the_simulator_s_prompt_attention_is_causal() -> None:
    """Half of all pairs; per layer 4 h e n (n + 1) / 2 FLOPs against the 4 n h e bytes of K, V."""
    operator = prefill_attention(ideal_deployment(LLAMA, H100), LLAMA.layers[0], 0, 1024)
    assert operator.flops / operator.moved_bytes == pytest.approx(1025 / 2)


def card(peak: float, bandwidth: float) -> Hardware:
    return Hardware(
        name="a card", peak_flops_per_s={"bf16": peak}, memory_bytes_per_s=bandwidth,
        memory_bytes=8e9, compute_units=24, link_bytes_per_s=16e9, host_link_bytes_per_s=16e9,
        source="a test",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("peak", "bandwidth", "per_byte", "per_element"),
    [(15.39e12, 768e9, 20.04, 40.1), (15.1e12, 272e9, 55.51, 111.0)],
    ids=["as printed", "the vendor's"],
)
def test_a_small_card_is_memory_bound_by_either_figures(
    peak: float, bandwidth: float, per_byte: float, per_element: float
) -> None:
    """Decode does about 1 FLOP/byte, 2 per fp16 element; the ridge is far above in both units."""
    ridge = card(peak, bandwidth).ridge_flops_per_byte()
    assert (round(ridge, 2), round(2 * ridge, 1)) == (per_byte, per_element)
    assert all(cell < 2 * ridge for (_, n, _), cell in cells().items() if n == 1)


def test_the_catalogue_has_the_vendor_s_figures_of_that_card() -> None:
    vendor = find_hardware("rtx-4060")
    assert vendor.memory_bytes_per_s == 272e9
    assert vendor.peak("fp32") == pytest.approx(15.1e12, rel=1e-3)
    assert round(vendor.ridge_flops_per_byte("fp32"), 1) == 55.6


@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen3-30b-a3b"])
def test_experts_count_every_weight_that_is_touched_and_every_flop_that_is_used(name: str) -> None:
    model = find_model(name)
    ffn = model.layers[0].ffn
    layers = model.layer_count
    for rows in (1, 7, 4096):
        fed = model_products(model, rows, rows)["FFN"]
        flops = sum(p.count * p.flops for p in fed)
        assert flops == pytest.approx(2 * rows * layers * ffn.active_params(model.width))
    touched = layers * ffn.touched_params(model.width, 10**6)
    (many,) = {sum(p.count * p.elements for p in model_products(model, 10**6, 10**6)["FFN"])}
    assert many > touched


@pytest.mark.parametrize("sharing", [1, 2])
@pytest.mark.parametrize("kv_heads", [1, 8, 32])
def test_projections_are_the_mixer_s_weights(kv_heads: int, sharing: int) -> None:
    mixer = Attention(heads=32, kv_heads=kv_heads, head_dim=128, kv_sharing=sharing)
    products = projections(mixer, 4096, 7)
    assert sum(p.count * p.flops for p in products) == 2 * 7 * mixer.params(4096)


def test_layers_of_latents_and_states_have_only_their_ffn() -> None:
    assert list(model_products(find_model("deepseek-v2"), 1, 128)) == ["FFN"]
    assert model_products(find_model("mamba-2.8b"), 1, 128) == {}


def test_a_product_counts_its_operands_and_its_result() -> None:
    left, right = np.ones((3, 5)), np.ones((5, 7))
    counted = product("any", 3, 5, 7)
    assert counted.elements == left.size + right.size + (left @ right).size
    assert counted.flops == 2 * sum(1 for _ in np.ndindex(3, 5, 7))


def test_a_day_s_words_and_lines() -> None:
    assert round(per_second(100e9)) == 1_157_407
    assert round(per_second(1e9)) == 11_574
    assert devices_for(100e9, 2689.4807) == 431
