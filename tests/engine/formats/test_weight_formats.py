"""The product that is taken for a format: each is that of what its codes stand for."""

import shutil

import pytest
import torch

from servetwin.engine.formats import weight_formats
from servetwin.engine.formats.rounded_weights import Int4Weight, Int8Weight, round_rows
from servetwin.engine.formats.weight_formats import (
    RestoredProduct,
    check_weight_format,
    quantised_product,
)
from servetwin.workloads.errors import EngineError

compiled = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def exact_products(x: torch.Tensor, weight: torch.Tensor, group: int) -> dict[str, torch.Tensor]:
    """By format, in float64."""
    int8, int4 = Int8Weight.of(weight), Int4Weight.of(weight, group)
    codes, scales = round_rows(x)
    return {
        "int8": x.double() @ int8.restored().double().T,
        "int4": x.double() @ int4.restored().double().T,
        "w8a8": (codes.double() @ int8.codes.double().T) * scales.double() * int8.scales.double(),
    }


@pytest.mark.parametrize("prepack", [True, False], ids=["fastest", "reference"])
@pytest.mark.parametrize("rows", [1, 2, 6, 7, 19, 33])
@pytest.mark.parametrize(("inputs", "outputs"), [(128, 130), (70, 7), (36, 65)])
def test_products_are_those_of_the_codes(
    inputs: int, outputs: int, rows: int, prepack: bool
) -> None:
    x, weight = random(rows, inputs, seed=1), random(outputs, inputs)
    for name, exact in exact_products(x, weight, group=32).items():
        found = quantised_product(name, weight, group=32, prepack=prepack)(x)
        assert (found.shape, found.dtype) == ((rows, outputs), torch.float32)
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["int8", "int4", "w8a8"])
@pytest.mark.parametrize("prepack", [True, False])
def test_rows_of_narrower_formats_keep_theirs(name: str, prepack: bool) -> None:
    x, weight = random(5, 64, seed=1), random(32, 64).bfloat16()
    product = quantised_product(name, weight, group=32, prepack=prepack)
    found = product(x.bfloat16())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), product(x.bfloat16().float()), rtol=0.02, atol=0.1)


@pytest.mark.parametrize("prepack", [True, False])
def test_rows_of_zeros_give_zeros_and_what_is_no_number_is_not_lost(prepack: bool) -> None:
    product = quantised_product("w8a8", random(9, 32), group=32, prepack=prepack)
    x = torch.zeros(3, 32)
    x[1, 5], x[2, 0] = torch.nan, 1.0
    found = product(x)
    assert (found[0] == 0).all()
    assert found[1].isnan().all()
    assert found[2].isfinite().all()


def backends(*, prepack: bool) -> list[str]:
    names = ("int8", "int4", "w8a8")
    weight = random(64, 64)
    return [quantised_product(n, weight, group=32, prepack=prepack).backend for n in names]


@compiled
def test_the_fastest_is_compiled_here() -> None:
    assert backends(prepack=True) == ["native", "native", "native"]


def test_the_reference_is_plain_torch() -> None:
    assert backends(prepack=False) == ["restored", "restored", "int_mm"]


def test_without_a_compiler_it_is_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_formats, "can_multiply", lambda weight: False)
    assert backends(prepack=True) == backends(prepack=False)


def test_a_group_longer_than_the_row_is_the_row() -> None:
    product = quantised_product("int4", random(8, 64), group=10_000, prepack=False)
    assert isinstance(product, RestoredProduct)
    assert product.bytes == 8 * 64 / 2 + 8 * 4


@pytest.mark.parametrize(
    ("name", "group", "message"),
    [
        ("int5", 128, r"unknown weight_format 'int5'; did you mean 'int\d'\?"),
        ("int4", 0, "weight_group: 0 weights cannot share a scale, use 1 or more"),
    ],
)
def test_formats_that_do_not_exist_are_refused(name: str, group: int, message: str) -> None:
    with pytest.raises(EngineError, match=f"^{message}$"):
        check_weight_format(name, group)
