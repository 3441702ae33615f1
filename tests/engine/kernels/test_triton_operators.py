"""Each kernel gives what plain torch gives, on whatever part of a product it is called."""

import pytest
import torch
from torch import Tensor

from servetwin.engine.kernels.choose_operators import operators_for
from servetwin.engine.models.operators import PLAIN, Operators
from tests.support.triton_device import DEVICE, HAS_CUDA

pytest.importorskip("triton")
EPS = 1e-5


@pytest.fixture(scope="module")
def kernels() -> Operators:
    from servetwin.engine.kernels.triton_operators import TritonOperators

    return TritonOperators()


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


def assert_near(found: Tensor, expected: Tensor, error: float = 2e-6) -> None:
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=error, atol=error)


@pytest.mark.parametrize(("rows", "width"), [(1, 64), (3, 96), (5, 1030)])
def test_a_norm_of_rows(kernels: Operators, rows: int, width: int) -> None:
    x, weight = draw(rows, width), draw(width, seed=1)
    assert_near(kernels.rms_norm(x, weight, EPS), PLAIN.rms_norm(x, weight, EPS))


@pytest.mark.parametrize("heads_of_weight", [1, 6])
def test_a_norm_of_heads_that_are_a_part_of_a_product(
    kernels: Operators, heads_of_weight: int
) -> None:
    heads = draw(3, 8, 32)[:, 1:7]
    weight = draw(heads_of_weight, 32, seed=1)
    weight = weight if heads_of_weight > 1 else weight[0]
    assert_near(kernels.rms_norm(heads, weight, EPS), PLAIN.rms_norm(heads, weight, EPS))


def test_a_norm_of_a_part_of_a_latent(kernels: Operators) -> None:
    latent, weight = draw(4, 1, 48)[:, :, :32], draw(32, seed=1)
    assert_near(kernels.rms_norm(latent, weight, EPS), PLAIN.rms_norm(latent, weight, EPS))


def test_an_addition_is_kept_beside_its_norm(kernels: Operators) -> None:
    x, delta, weight = draw(3, 80), draw(3, 80, seed=1), draw(80, seed=2)
    before = x.clone()
    for found, expected in zip(
        kernels.add_norm(x, delta, weight, EPS), PLAIN.add_norm(x, delta, weight, EPS), strict=True
    ):
        assert_near(found, expected)
    assert torch.equal(x, before)
    same, normed = kernels.add_norm(x, None, weight, EPS)
    assert same is x
    assert_near(normed, PLAIN.rms_norm(x, weight, EPS))


@pytest.mark.parametrize(("heads", "width"), [(1, 16), (6, 32), (11, 80)])
def test_heads_are_turned_by_position(kernels: Operators, heads: int, width: int) -> None:
    product = draw(3, heads + 2, width + 8)[:, :heads, 8:]
    angles = draw(3, 1, width // 2, seed=1)
    cos, sin = angles.cos(), angles.sin()
    cos, sin = torch.cat((cos, cos), 2), torch.cat((-sin, sin), 2)
    assert_near(kernels.rotate(product, cos, sin), PLAIN.rotate(product, cos, sin))


@pytest.mark.parametrize(("rows", "width"), [(1, 32), (3, 1500)])
def test_a_gate_opens_the_up_projection(kernels: Operators, rows: int, width: int) -> None:
    gate_up = draw(rows, 2 * width) * 4
    assert_near(kernels.swiglu(gate_up), PLAIN.swiglu(gate_up))


def test_no_rows_are_no_launch(kernels: Operators) -> None:
    empty, weight = draw(0, 32), draw(32)
    assert kernels.add_norm(empty, empty, weight, EPS)[1].shape == (0, 32)
    assert kernels.swiglu(draw(0, 64)).shape == (0, 32)
    assert kernels.rotate(draw(0, 2, 32), draw(0, 1, 32), draw(0, 1, 32)).shape == (0, 2, 32)


def test_low_precision_rounds_where_torch_rounds(kernels: Operators) -> None:
    """Not in bfloat16: the interpreter cuts off where a GPU rounds."""
    dtype = torch.float16
    x, delta, weight = draw(2, 64, dtype=dtype), draw(2, 64, seed=1, dtype=dtype), draw(64, seed=2)
    weight, step = weight.to(dtype), 2 * torch.finfo(dtype).eps
    for found, expected in zip(
        kernels.add_norm(x, delta, weight, EPS), PLAIN.add_norm(x, delta, weight, EPS), strict=True
    ):
        assert_near(found, expected, step)
    assert_near(kernels.swiglu(x), PLAIN.swiglu(x), step)


def test_the_device_of_the_weights_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    from servetwin.engine.kernels import choose_operators as module
    from servetwin.engine.kernels.triton_operators import TritonOperators

    assert operators_for(torch.device("cpu")) is PLAIN
    assert isinstance(operators_for(torch.device("cuda")), TritonOperators)
    monkeypatch.setattr(module, "has_triton", lambda: False)
    assert operators_for(torch.device("cuda")) is PLAIN


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")
@pytest.mark.parametrize("rows", [1, 64, 2048])
def test_the_shapes_of_a_real_model_on_a_gpu(kernels: Operators, rows: int) -> None:
    x, delta, weight = (
        draw(rows, 4096, seed=0, dtype=torch.bfloat16),
        draw(rows, 4096, seed=1, dtype=torch.bfloat16),
        draw(4096, seed=2, dtype=torch.bfloat16),
    )
    for found, expected in zip(
        kernels.add_norm(x, delta, weight, EPS), PLAIN.add_norm(x, delta, weight, EPS), strict=True
    ):
        assert_near(found, expected, 1.6e-2)
    gate_up = draw(rows, 2 * 14336, dtype=torch.bfloat16)
    assert_near(kernels.swiglu(gate_up), PLAIN.swiglu(gate_up), 1.6e-2)
    heads = draw(rows, 48, 128, dtype=torch.bfloat16)[:, :40]
    angle = draw(rows, 1, 128, seed=3, dtype=torch.bfloat16)
    assert_near(
        kernels.rotate(heads, angle.cos(), angle.sin()),
        PLAIN.rotate(heads, angle.cos(), angle.sin()),
        3e-2,
    )
