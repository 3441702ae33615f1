"""Every Triton kernel against arithmetic in float64, over the sizes that models have.

What the interpreter does not show, and only a card can: how a GPU rounds products in bfloat16 (the
interpreter multiplies their raw bits, so numbers of bfloat16 are computed in float32 here), the
order in which it adds, and speed.
"""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from servetwin.engine.attention.table_attention import (
    NO_WINDOW,
    BlockTables,
    StoredHeads,
)
from servetwin.engine.formats import weight_formats
from servetwin.engine.formats.rounded_weights import Int4Weight, Int8Weight
from servetwin.engine.formats.weight_formats import quantised_product
from tests.support.triton_device import DEVICE

pytest.importorskip("triton")
from servetwin.engine.kernels import rounded_product
from servetwin.engine.kernels.decode_attention import attend_decodes
from servetwin.engine.kernels.rounded_product import TritonProduct
from servetwin.engine.kernels.triton_operators import TritonOperators

BLOCK, BLOCKS = 16, 40
HOLE = -(10**9)
"""Leads nowhere: a kernel that follows it fails."""
ERRORS = {torch.float32: 1e-5, torch.float16: 2e-3}
"""Two or three roundings of what is stored, of numbers around 1."""
EPS = 1e-5


def draw(*shape: int, seed: int, kind: str = "float32") -> Tensor:
    """Random numbers of a type; those of bfloat16 as float32, which holds them exactly."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    if kind == "bfloat16":
        return numbers.bfloat16().float().to(DEVICE)
    return numbers.to(DEVICE, getattr(torch, kind))


def assert_near(found: Tensor, exact: Tensor) -> None:
    error = float((found.double() - exact).abs().max() / exact.abs().max().clamp_min(1.0))
    assert error <= ERRORS[found.dtype], error


def ragged_tables(contexts: list[int], window: int = NO_WINDOW) -> BlockTables:
    """Scattered blocks; beyond the context, and where nothing is visible, the table has holes."""
    order = torch.randperm(BLOCKS, generator=torch.Generator().manual_seed(5)) * BLOCK
    table = torch.full((len(contexts), BLOCKS), HOLE)
    used = 0
    for row, context in zip(table, contexts, strict=True):
        for block in range(-(-context // BLOCK)):
            positions = range(block * BLOCK, min((block + 1) * BLOCK, context))
            if any(sees(position, context, window) for position in positions):
                row[block] = order[used]
                used += 1
    return BlockTables(table.to(DEVICE), torch.tensor(contexts, device=DEVICE), BLOCK)


def sees(position: int, context: int, window: int) -> bool:
    return position >= context - window


def attended(
    queries: Tensor, stored: StoredHeads, tables: BlockTables, window: int = NO_WINDOW
) -> Tensor:
    """Row by row and head by head, in float64."""
    rows, heads, group, width = queries.shape
    output = torch.zeros(rows, heads, group, stored.values.shape[2], dtype=torch.float64)
    for row, context in enumerate(tables.contexts.tolist()):
        positions = [p for p in range(context) if sees(p, context, window)]
        slots = [int(tables.starts[row, p // BLOCK]) + p % BLOCK for p in positions]
        for head in range(heads if slots else 0):
            keys = stored.keys[slots, head].double()
            scores = queries[row, head].double() @ keys.T / math.sqrt(width)
            output[row, head] = scores.softmax(-1) @ stored.values[slots, head].double()
    return output


def stored_heads(
    tables: BlockTables, heads: int, width: int, kind: str, value_width: int | None = None
) -> StoredHeads:
    """Keys and values in the slots of the tables, and no numbers in all others."""
    shape = (BLOCKS * BLOCK, heads)
    keys = draw(*shape, width, seed=1, kind=kind)
    values = draw(*shape, value_width or width, seed=2, kind=kind)
    owned = {int(start) + at for start in tables.starts.ravel() for at in range(BLOCK)}
    others = [slot for slot in range(BLOCKS * BLOCK) if slot not in owned]
    keys[others] = values[others] = torch.nan
    return StoredHeads(keys, values)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("width", [64, 80, 96, 128, 192, 256])
def test_decodes_of_every_head_size(width: int, kind: str) -> None:
    tables = ragged_tables([1, 17, 130])
    queries = draw(3, 2, 4, width, seed=0, kind=kind)
    stored = stored_heads(tables, 2, width, kind)
    assert_near(attend_decodes(queries, stored, tables), attended(queries, stored, tables))


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("group", [1, 2, 3, 5, 7, 8, 16, 32])
def test_decodes_of_every_group(group: int, kind: str) -> None:
    tables = ragged_tables([33, 100])
    queries = draw(2, 1, group, 64, seed=0, kind=kind)
    stored = stored_heads(tables, 1, 64, kind)
    assert_near(attend_decodes(queries, stored, tables), attended(queries, stored, tables))


@pytest.mark.parametrize("window", [40, 33, 1])
def test_what_a_window_hides_may_be_a_hole(window: int) -> None:
    tables = ragged_tables([7, 64, 200], window)
    assert tables.starts[2, 3] == HOLE
    assert tables.starts[2, 12] != HOLE
    queries, stored = draw(3, 2, 4, 64, seed=0), stored_heads(tables, 2, 64, "float32")
    exact = attended(queries, stored, tables, window)
    assert_near(attend_decodes(queries, stored, tables, window), exact)


@given(
    contexts=st.lists(st.integers(0, 160), min_size=1, max_size=4).filter(any),
    heads=st.integers(1, 3),
    group=st.integers(1, 6),
    width=st.sampled_from([64, 72, 128]),
    value_width=st.sampled_from([64, 40, 128]),
    shares=st.sampled_from([None, 1, 4, 7]),
    kind=st.sampled_from(["float32", "float16", "bfloat16"]),
)
@settings(deadline=None, max_examples=10)
def test_decodes_of_any_shape(
    contexts: list[int], heads: int, group: int, width: int, value_width: int,
    shares: int | None, kind: str,
) -> None:  # fmt: skip
    tables = ragged_tables(contexts)
    queries = draw(len(contexts), heads, group, width, seed=0, kind=kind)
    stored = stored_heads(tables, heads, width, kind, value_width)
    found = attend_decodes(queries, stored, tables, shares=shares)
    assert_near(found, attended(queries, stored, tables))


OPERATORS = TritonOperators()


def normed(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.double()
    return wide / (wide.square().mean(-1, keepdim=True) + EPS).sqrt() * weight.double()


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("width", [64, 100, 576, 4096])
def test_norms_with_and_without_an_addition(width: int, kind: str) -> None:
    x, delta = draw(3, width, seed=0, kind=kind), draw(3, width, seed=1, kind=kind)
    weight = draw(width, seed=2, kind=kind)
    total, found = OPERATORS.add_norm(x, delta, weight, EPS)
    exact = x.double() + delta.double()
    assert_near(total, exact)
    assert_near(found, normed(exact, weight))
    assert_near(OPERATORS.rms_norm(x, weight, EPS), normed(x, weight))


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("width", [64, 80, 96, 128, 192, 256])
def test_heads_turned_by_their_positions(width: int, kind: str) -> None:
    heads = draw(3, 5, width, seed=0, kind=kind)
    angles = draw(3, 1, width // 2, seed=1).double()
    cos, sin = torch.cat([angles.cos()] * 2, 2), torch.cat((-angles.sin(), angles.sin()), 2)
    swapped = heads.double().roll(width // 2, 2)
    found = OPERATORS.rotate(heads, cos.to(heads.dtype), sin.to(heads.dtype))
    assert_near(found, heads.double() * cos + swapped * sin)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("width", [1, 96, 1025, 5000])
def test_gates(width: int, kind: str) -> None:
    gate_up = draw(2, 2 * width, seed=0, kind=kind)
    gate, up = gate_up.double().chunk(2, 1)
    assert_near(OPERATORS.swiglu(gate_up), gate / (1 + (-gate).exp()) * up)


def rounded(weight: Tensor, group: int) -> list[Int8Weight | Int4Weight]:
    return [Int8Weight.of(weight), Int4Weight.of(weight, group)]


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("rows", "inputs", "outputs", "group"),
    [(1, 64, 64, 32), (3, 101, 70, 32), (17, 257, 40, 128), (70, 96, 130, 20), (16, 64, 1, 64)],
)
def test_products_with_weights_in_few_bits(
    rows: int, inputs: int, outputs: int, group: int, kind: str
) -> None:
    x = draw(rows, inputs, seed=0, kind=kind)
    for weight in rounded(draw(outputs, inputs, seed=1), group):
        found = TritonProduct(weight)(x)
        assert found.shape == (rows, outputs)
        assert_near(found, x.double() @ weight.restored().double().T)


@given(
    rows=st.integers(0, 70),
    inputs=st.integers(1, 130),
    outputs=st.integers(1, 130),
    group=st.integers(1, 140),
)
@settings(deadline=None, max_examples=10)
def test_products_of_any_sizes(rows: int, inputs: int, outputs: int, group: int) -> None:
    x = draw(rows, inputs, seed=0)
    for weight in rounded(draw(outputs, inputs, seed=1) + 0.5, group):
        found, exact = TritonProduct(weight)(x), x.double() @ weight.restored().double().T
        assert found.shape == exact.shape
        if rows:
            assert_near(found, exact)


class OneLaunch:
    """In the place of a program: counts its launches, and computes nothing."""

    def __init__(self) -> None:
        self.count = 0

    def __getitem__(self, grid: tuple[int, ...]) -> "OneLaunch":
        return self

    def __call__(self, *arguments: object, **sizes: object) -> None:
        self.count += 1


class AllocatedBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """The largest tensor that anything inside has made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = 0

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = operator(*args, **(kwargs or {}))
        if not operator.is_view:
            self.largest = max(self.largest, result.nbytes)
        return result


@pytest.mark.parametrize("rows", [1, 64])
def test_a_product_is_one_launch_that_restores_no_matrix(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    for weight in rounded(draw(96, 64, seed=1), 32):
        product, program = TritonProduct(weight), OneLaunch()
        stored = [one for one in vars(product).values() if isinstance(one, Tensor)]
        assert sum(one.nbytes for one in stored) == product.bytes == weight.bytes
        monkeypatch.setattr(rounded_product, "multiply_codes", program)
        with AllocatedBytes() as allocated:
            assert product(draw(rows, 64, seed=0)).shape == (rows, 96)
        assert program.count == 1
        assert allocated.largest <= 4 * rows * 96


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_weights_in_few_bits_take_the_kernel_on_cuda(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    on_cuda = SimpleNamespace(device=torch.device("cuda"), shape=(8, 64))
    for kind in ("Int8Weight", "Int4Weight"):
        real = rounded(draw(8, 64, seed=1), 32)[kind == "Int4Weight"]
        monkeypatch.setattr(weight_formats, kind, SimpleNamespace(of=lambda *_, real=real: real))
    monkeypatch.setattr(weight_formats, "can_multiply", lambda weight: False)
    kinds = {
        prepack: quantised_product(name, on_cuda, group=32, prepack=prepack).backend  # type: ignore[arg-type]
        for prepack in (True, False)
    }
    assert kinds == {True: "triton", False: "restored"}
    monkeypatch.setattr(weight_formats, "has_triton", lambda: False)
    without = quantised_product(name, on_cuda, group=32, prepack=True)  # type: ignore[arg-type]
    assert without.backend == "restored"
