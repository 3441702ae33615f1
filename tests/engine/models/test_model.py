from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from engine.models.model import RotaryTable, rms_norm, rotate
from engine.models.model_config import model_preset

CPU = torch.device("cpu")
TINY = replace(model_preset("tiny"), tie_embeddings=False)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-7)])
def test_rms_norm_equals_torch(dtype: torch.dtype, tolerance: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(*shape, generator=generator).to(dtype) for shape in [(5, 64), (64,)])
    expected = F.rms_norm(x.float(), (64,), weight.float(), 1e-5)
    torch.testing.assert_close(
        rms_norm(x, weight, 1e-5).float(), expected, rtol=tolerance, atol=tolerance
    )


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
