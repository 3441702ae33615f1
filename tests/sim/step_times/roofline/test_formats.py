"""Formats of weights: bytes, quality and names."""

from dataclasses import replace

import pytest

from sim.step_times.roofline.formats import (
    FORMATS,
    Format,
    find_format,
    grouped_bytes,
)
from tests.support.number_techniques import LLAMA_ON_A100, ideal
from workloads.errors import PolicyError


@pytest.mark.parametrize(
    ("name", "size"),
    [("fp32", 4), ("bf16", 2), ("fp8", 1), ("int8", 1), ("w8a8", 1), ("llm-int8", 1.01)],
)
def test_bytes_per_weight(name: str, size: float) -> None:
    assert find_format(name).weight_bytes == pytest.approx(size)


def test_group_scales_have_their_weight() -> None:
    assert grouped_bytes(4, 128, zero_bits=16) - 0.5 == pytest.approx(0.03, abs=5e-3)
    assert FORMATS["int4"].weight_bytes == FORMATS["awq"].weight_bytes == 0.53125
    assert 8 * grouped_bytes(4, 32) == 4.5  # q4_0: 32 weights in 18 bytes


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
def test_fewer_bytes_never_keep_more_quality(form: Format) -> None:
    smaller = [f for f in FORMATS.values() if f.weight_bytes < form.weight_bytes]
    assert all(other.quality_bits <= form.quality_bits for other in smaller)
    assert form.lossless == (form.quality_bits >= 16)
    assert form.memory_share <= 1
    assert form.compute_share <= 1
    assert form.quality_bits <= 8 * form.weight_bytes * 1.1


def test_unknown_formats_are_refused_with_the_nearest_one() -> None:
    with pytest.raises(PolicyError, match="unknown 'int88'; did you mean 'int8'"):
        find_format("int88")
