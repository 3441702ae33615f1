import platform
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from servetwin.engine.models.linear import PLAIN, PREPACKED, Linear

on_x86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="torch prepacks for oneDNN on x86 only"
)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 16, 33])
@pytest.mark.parametrize(("inputs", "outputs"), [(128, 384), (96, 7)])
def test_prepacked_and_plain_agree(rows: int, inputs: int, outputs: int) -> None:
    x, weight = random(rows, inputs), random(outputs, inputs)
    prepacked, plain = Linear(weight)(x), Linear(weight, prepack=False)(x)
    assert prepacked.shape == (rows, outputs)
    assert torch.equal(plain, F.linear(x, weight))
    torch.testing.assert_close(prepacked, plain, rtol=0, atol=5e-5)


def test_prepacked_bfloat16_is_as_close_to_exact_as_its_format_allows() -> None:
    x, weight = random(9, 256, dtype=torch.bfloat16), random(64, 256, dtype=torch.bfloat16)
    exact = x.double() @ weight.double().T
    torch.testing.assert_close(Linear(weight)(x).double(), exact, rtol=2**-8, atol=1e-3)


@on_x86
def test_weights_are_prepacked_unless_told_otherwise() -> None:
    assert Linear(random(8, 8)).backend == PREPACKED
    assert Linear(random(8, 8), prepack=False).backend == PLAIN


def raise_not_implemented(*_: object) -> None:
    raise NotImplementedError("not available for this backend")


@pytest.mark.parametrize(
    "operators",
    [
        SimpleNamespace(),
        SimpleNamespace(_reorder_linear_weight=raise_not_implemented),
        SimpleNamespace(_reorder_linear_weight=lambda weight: weight),
        SimpleNamespace(
            _reorder_linear_weight=lambda weight: weight, _linear_pointwise=raise_not_implemented
        ),
    ],
    ids=["all missing", "packing fails", "product missing", "product fails"],
)
def test_falls_back_where_torch_lacks_the_operators(
    monkeypatch: pytest.MonkeyPatch, operators: SimpleNamespace
) -> None:
    monkeypatch.setattr(torch.ops, "mkldnn", operators)
    x, weight = random(3, 16), random(5, 16)
    linear = Linear(weight)
    assert linear.backend == PLAIN
    assert torch.equal(linear(x), F.linear(x, weight))
