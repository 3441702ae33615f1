"""Rotary positions and their scaling."""

from dataclasses import replace

import pytest
import torch

from servetwin.engine.models.model_config import model_preset
from servetwin.engine.models.rope_scaling import RopeScaling
from servetwin.engine.models.rotary import RotaryTable, rotary_frequencies, rotate

CPU = torch.device("cpu")
TINY = replace(model_preset("tiny"), tie_embeddings=False)


def test_rotation_is_a_complex_product_per_pair() -> None:
    heads = torch.randn(3, 2, TINY.head_dim, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([0, 7, 1000])
    cos, sin = RotaryTable(TINY, torch.float32, CPU).at(positions, 1001)
    half = TINY.head_dim // 2
    frequencies = TINY.rope_theta ** (-torch.arange(half).double() / half)
    turns = torch.polar(torch.ones(3, half).double(), positions[:, None] * frequencies)[:, None]
    expected = torch.complex(heads[..., :half].double(), heads[..., half:].double()) * turns
    rotated = rotate(heads, cos, sin).double()
    torch.testing.assert_close(
        rotated, torch.cat([expected.real, expected.imag], -1), rtol=0, atol=5e-4
    )


def test_the_rotary_table_grows_by_powers_of_two_and_keeps_its_values() -> None:
    table, last = RotaryTable(TINY, torch.float32, CPU), torch.tensor([4])
    before = table.at(last, 5)
    table.at(last, 8)
    assert len(table._cos) == 8
    table.at(torch.tensor([8]), 9)
    assert len(table._cos) == 16
    assert all(map(torch.equal, before, table.at(last, 5)))
    assert len(table._cos) == 16


def frequencies(scaling: RopeScaling | None) -> torch.Tensor:
    return rotary_frequencies(replace(TINY, head_dim=128, rope_scaling=scaling), CPU)


def test_linear_scaling_divides_every_frequency() -> None:
    assert torch.equal(frequencies(RopeScaling("linear", 4.0)), frequencies(None) / 4)


@pytest.mark.parametrize("kind", ["llama3", "yarn"])
def test_short_waves_stay_and_long_waves_are_stretched_in_full(kind: str) -> None:
    scaling = RopeScaling(kind, 8.0, original_max_len=8192)  # type: ignore[arg-type]
    shares = frequencies(scaling) / frequencies(None)
    assert shares[0] == 1
    assert shares[-1] == pytest.approx(1 / 8)
    assert (shares[1:] <= shares[:-1]).all()
    assert ((shares > 1 / 8) & (shares < 1)).sum() > 3


def test_yarn_makes_queries_and_keys_longer() -> None:
    config = replace(TINY, rope_scaling=RopeScaling("yarn", 8.0))
    cos, _ = RotaryTable(config, torch.float32, CPU).at(torch.tensor([0]), 1)
    assert cos.min().item() == cos.max().item() == pytest.approx(0.1 * 2.0794415 + 1)
