"""The padding of rows is what a clock says, whatever else the machine does."""

import platform
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from servetwin.engine.models.linear import DEFAULT_PADDING, PREPACKED, Linear
from servetwin.engine.models.row_padding import PADDINGS, choose_paddings

WIDE, NARROW, HEAD = (1024, 1024), (512, 1024), (2048, 1024)
Cost = Callable[[tuple[int, ...], int], float]


class Machine:
    """A clock that only products move, each by ``cost`` of its shape and padding."""

    def __init__(self, cost: Cost, disturbed: frozenset[int] = frozenset()) -> None:
        self.now_s, self.calls = 0.0, 0
        self._cost, self._disturbed = cost, disturbed

    def clock(self) -> float:
        return self.now_s

    def product(self, shape: tuple[int, int]) -> Linear:
        machine = self

        class Timed(Linear):
            def __call__(self, x: Tensor) -> Tensor:
                machine.calls += 1
                machine.now_s += machine._cost(tuple(self.shape), self.padding)
                machine.now_s += 1.0 if machine.calls in machine._disturbed else 0.0
                return x

        return Timed(torch.empty(shape), prepack=False)

    def model(self, layers: int = 4) -> list[Linear]:
        shapes = [WIDE, NARROW] * layers + [HEAD]
        return [self.product(shape) for shape in shapes]

    def chosen(self, layers: int = 4) -> dict[tuple[int, ...], int]:
        products = self.model(layers)
        choose_paddings(products, torch.float32, self.clock)
        found = {(tuple(product.shape), product.padding) for product in products}
        assert len(found) == 3
        return dict(found)


def test_each_shape_gets_what_is_fastest_and_the_head_does_as_the_heaviest() -> None:
    best = {WIDE: 4, NARROW: 2}
    machine = Machine(lambda shape, padding: 1e-3 if padding == best[shape[0], 1024] else 2e-3)
    assert machine.chosen() == {WIDE: 4, NARROW: 2, HEAD: 4}
    assert machine.calls == 4 * 2 * len(PADDINGS)


@pytest.mark.parametrize("saving", [0.0, 0.05])
def test_rows_are_not_padded_for_next_to_nothing(saving: float) -> None:
    machine = Machine(lambda shape, padding: 1e-3 * (1 - saving * (padding > 1)))
    assert set(machine.chosen().values()) == {1}


def test_what_disturbs_all_layers_but_one_changes_nothing() -> None:
    def cost(shape: tuple[int, ...], padding: int) -> float:
        return 1e-3 if padding == 4 else 1.5e-3

    rounds = len(PADDINGS)
    disturbed = frozenset(call for call in range(1, 8 * 6 + 1) if call % (2 * rounds) > 1)
    assert set(Machine(cost, disturbed).chosen(layers=6).values()) == {4}


def test_a_disturbance_as_long_as_a_turn_hits_all_paddings_alike() -> None:
    first_turn = frozenset(range(1, 8 + 1))
    machine = Machine(lambda shape, padding: 1e-3 * padding, first_turn)
    assert set(machine.chosen(layers=4).values()) == {1}


def test_a_model_that_caches_hold_is_not_measured() -> None:
    machine = Machine(lambda shape, padding: 1.0)
    products = [machine.product((64, 64)) for _ in range(8)]
    choose_paddings(products, torch.float32, machine.clock)
    choose_paddings([], torch.float32, machine.clock)
    assert machine.calls == 0


def test_only_as_many_bytes_are_read_as_it_takes() -> None:
    machine = Machine(lambda shape, padding: 1e-3)
    machine.chosen(layers=100)
    assert machine.calls <= 44 * len(PADDINGS)  # of 200 products of 3 MB on average


@pytest.mark.skipif(platform.machine() != "x86_64", reason="torch prepacks for oneDNN on x86 only")
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_padding_changes_rounding_only(rows: int) -> None:
    x, linear = torch.randn(rows, 256), Linear(torch.randn(130, 256))
    assert (linear.backend, linear.padding) == (PREPACKED, DEFAULT_PADDING)
    expected = linear(x)
    for padding in PADDINGS:
        linear.padding = padding
        assert linear(x).shape == (rows, 130)
        torch.testing.assert_close(linear(x), expected, rtol=0, atol=5e-5)
