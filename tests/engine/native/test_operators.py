"""Operators in C beside those of torch."""

import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.models.operators import PLAIN
from servetwin.engine.native.operators import NativeOperators, native_operators

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

ROWS, WIDTHS = st.integers(1, 9), st.integers(1, 70)


def native() -> NativeOperators:
    found = native_operators()
    assert found is not None
    return found


@given(rows=ROWS, width=WIDTHS, added=st.booleans())
def test_norms(rows: int, width: int, added: bool) -> None:
    x, delta, weight = torch.randn(rows, width), torch.randn(rows, width), torch.randn(width)
    other = delta if added else None
    for got, want in zip(
        native().add_norm(x, other, weight, 1e-5), PLAIN.add_norm(x, other, weight, 1e-5),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(got, want)


def test_norms_of_heads_have_a_row_of_weights_each() -> None:
    heads = torch.randn(5, 9, 16)[:, 2:8]
    weight = torch.randn(6, 16)
    torch.testing.assert_close(
        native().rms_norm(heads, weight, 1e-6), PLAIN.rms_norm(heads, weight, 1e-6)
    )


@given(rows=ROWS, heads=st.integers(1, 5), half=st.integers(1, 20))
def test_rotation(rows: int, heads: int, half: int) -> None:
    x = torch.randn(rows, heads + 2, 2 * half)[:, :heads]
    cos, sin = torch.randn(2, rows, 1, 2 * half)
    torch.testing.assert_close(native().rotate(x, cos, sin), PLAIN.rotate(x, cos, sin))
    columns = torch.randn(rows, 2 * half, heads).transpose(1, 2)
    torch.testing.assert_close(native().rotate(columns, cos, sin), PLAIN.rotate(columns, cos, sin))


@given(rows=ROWS, width=WIDTHS, scale=st.sampled_from([0.1, 1.0, 100.0, 1e6]))
def test_the_gate(rows: int, width: int, scale: float) -> None:
    gate_up = scale * torch.randn(rows, 2 * width)
    torch.testing.assert_close(native().swiglu(gate_up), PLAIN.swiglu(gate_up))


def test_other_formats_are_left_to_torch() -> None:
    x = torch.randn(3, 8).bfloat16()
    assert torch.equal(native().swiglu(x), PLAIN.swiglu(x))
    weight = torch.ones(8).bfloat16()
    assert torch.equal(native().rms_norm(x, weight, 1e-5), PLAIN.rms_norm(x, weight, 1e-5))


def test_a_cpu_takes_them_where_they_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    from servetwin.engine.kernels import choose_operators

    cpu = torch.device("cpu")
    assert isinstance(choose_operators.operators_for(cpu), NativeOperators)
    monkeypatch.setattr(choose_operators, "native_operators", lambda: None)
    assert choose_operators.operators_for(cpu) is PLAIN
