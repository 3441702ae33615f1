"""Formats of weights: bytes, quality and names."""

from dataclasses import replace

import pytest

from servetwin.sim.step_times.roofline.formats import (
    BLOCK_FORMATS,
    FORMATS,
    KV_FORMATS,
    Format,
    Grid,
    find_format,
    grouped_bytes,
    sqnr_db,
    with_dynamic_scales,
)
from servetwin.workloads.errors import PolicyError
from tests.support.number_techniques import LLAMA_ON_A100, ideal


@pytest.mark.parametrize(
    ("name", "size"),
    [("fp32", 4), ("bf16", 2), ("fp8", 1), ("int8", 1), ("w8a8", 1), ("llm-int8", 1.01)],
)
def test_bytes_per_weight(name: str, size: float) -> None:
    assert find_format(name).weight_bytes == pytest.approx(size)


def test_group_scales_have_their_weight() -> None:
    assert grouped_bytes(4, 128, zero_bits=16) - 0.5 == pytest.approx(0.03, abs=5e-3)
    assert FORMATS["int4"].weight_bytes == grouped_bytes(4, 128, zero_bits=16) == 0.53125
    assert FORMATS["awq"].weight_bytes == grouped_bytes(4, 128, zero_bits=4) == 0.51953125
    assert FORMATS["gptq"].weight_bytes == FORMATS["awq"].weight_bytes
    assert grouped_bytes(4, 32) == FORMATS["q4_0"].weight_bytes


@pytest.mark.parametrize(
    ("name", "size_bytes", "weights", "bits"),
    [
        ("q8_0", 34, 32, 8.5), ("q6_k", 210, 256, 6.5625), ("q5_k", 176, 256, 5.5),
        ("q5_1", 24, 32, 6.0), ("q5_0", 22, 32, 5.5), ("q4_1", 20, 32, 5.0),
        ("q4_k", 144, 256, 4.5), ("q4_0", 18, 32, 4.5), ("iq4_nl", 18, 32, 4.5),
        ("iq4_xs", 136, 256, 4.25), ("q3_k", 110, 256, 3.4375), ("iq3_s", 110, 256, 3.4375),
        ("iq3_xxs", 98, 256, 3.0625), ("q2_k", 84, 256, 2.625), ("iq2_s", 82, 256, 2.5625),
        ("iq2_xs", 74, 256, 2.3125), ("iq2_xxs", 66, 256, 2.0625), ("iq1_m", 56, 256, 1.75),
        ("iq1_s", 50, 256, 1.5625),
    ],
)  # fmt: skip
def test_blocks_of_gguf_weigh_what_they_weigh_there(
    name: str, size_bytes: int, weights: int, bits: float
) -> None:
    form = find_format(name)
    assert form.weight_bytes == size_bytes / weights == bits / 8
    assert f"{size_bytes} bytes per {weights} weights" in form.source
    assert name in BLOCK_FORMATS


def test_blocks_are_made_of_what_the_format_puts_into_them() -> None:
    """fp16 scales (2), minima (2), scales of 32 or 16 weights, then the bits of the weights."""
    assert FORMATS["q4_0"].weight_bytes * 32 == 2 + 32 * 4 / 8
    assert FORMATS["q5_0"].weight_bytes * 32 == 2 + 32 * 5 / 8
    assert FORMATS["q4_k"].weight_bytes * 256 == 2 + 2 + 12 + 256 * 4 / 8
    assert FORMATS["q5_k"].weight_bytes * 256 == 2 + 2 + 12 + 256 * 5 / 8
    assert FORMATS["q6_k"].weight_bytes * 256 == 2 + 256 / 16 + 256 * 6 / 8
    assert FORMATS["q3_k"].weight_bytes * 256 == 2 + 12 + 256 * 3 / 8
    assert FORMATS["q2_k"].weight_bytes * 256 == 2 + 2 + 256 / 16 + 256 * 2 / 8
    assert len(BLOCK_FORMATS) == 19


@pytest.mark.parametrize(
    ("name", "bytes_per_element"),
    [("fp32", 4), ("bf16", 2), ("fp8", 1), ("bf8", 1), ("int8", 1.03125), ("int4", 0.53125),
     ("q8_0", 1.0625), ("q4_0", 0.5625)],
)  # fmt: skip
def test_bytes_per_element_of_keys_and_values(name: str, bytes_per_element: float) -> None:
    assert KV_FORMATS[name] == bytes_per_element
    assert len(KV_FORMATS) == 8


@pytest.mark.parametrize(
    ("bits", "gigabytes"),
    [(1.5, 1.263), (2, 1.685), (3, 2.527), (4, 3.369), (5, 4.211), (6, 5.054), (8, 6.738),
     (16, 13.476)],
)  # fmt: skip
def test_weights_of_llama_2_7b(bits: float, gigabytes: float) -> None:
    form = ideal("int8", bits / 8)
    deployment = replace(LLAMA_ON_A100, prefill=form, decode=form)
    assert round(deployment.weight_bytes() / 1e9, 3) == gigabytes


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_only_16_bits_and_more_are_lossless(form: Format) -> None:
    assert form.lossless == (form.weight_bytes >= 2)
    assert form.memory_share <= 1
    assert form.compute_share <= 1


def test_fewer_bits_have_more_noise_in_one_scheme() -> None:
    """The same kind of grid and group: k-quants, older blocks, floats."""
    grids = {f.grid for f in FORMATS.values() if f.grid}
    schemes = {(grid.kind, grid.group) for grid in grids}
    for scheme in schemes:
        bits = sorted(g.bits for g in grids if (g.kind, g.group) == scheme)
        noise = [sqnr_db(Grid(scheme[0], count, scheme[1])) for count in bits]
        assert noise == sorted(noise)
        assert len(set(noise)) == len(bits)
    assert max(len([g for g in grids if (g.kind, g.group) == s]) for s in schemes) >= 3


def test_dynamic_scales_move_every_activation_once_more_and_need_no_data() -> None:
    dynamic = with_dynamic_scales(FORMATS["w8a8"])
    assert (dynamic.activation_scales, dynamic.calibration) == ("dynamic", "none")
    assert dynamic.scaling_bytes == 3
    assert FORMATS["w8a8"].scaling_bytes == FORMATS["llm-int8"].scaling_bytes == 0


def test_unknown_formats_are_refused_with_the_nearest_one() -> None:
    with pytest.raises(PolicyError, match="unknown 'int88'; did you mean 'int8'"):
        find_format("int88")
    for wrong, near in [("q4_K_M", "q4_k"), ("iq2xxs", "iq2_xxs"), ("gtpq", "gptq")]:
        with pytest.raises(PolicyError, match=f"did you mean '{near}'"):
            find_format(wrong)
