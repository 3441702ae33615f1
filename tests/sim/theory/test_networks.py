"""Tandem queues, closed loops and Little's law, against Markov processes and product forms."""

from itertools import product
from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.markov import Moves, State, steady_state
from tests.support.theory.queues import (
    closed_loop,
    closed_loop_throughput_bound_per_s,
    littles_law_gap,
    number_integral_s,
    tandem_sojourn_s,
)


def test_tandem() -> None:
    assert tandem_sojourn_s(0.5, [1.0, 1 / 0.8]) == pytest.approx(5.33333, abs=5e-6)


def test_tandem_sojourn_is_that_of_its_markov_process() -> None:
    rate, serve, levels = 0.3, (1.0, 0.8), 40

    def rates(state: State) -> Moves:
        a, b = state
        moves: Moves = [((a + 1, b), rate)]
        moves += [((a - 1, b + 1), serve[0])] if a else []
        return moves + ([((a, b - 1), serve[1])] if b else [])

    states: list[State] = list(product(range(levels), repeat=2))
    number = float(steady_state(states, rates) @ np.sum(states, axis=1))
    sojourn = tandem_sojourn_s(rate, [1 / s for s in serve])
    assert number / rate == pytest.approx(sojourn, rel=1e-6)


@pytest.mark.parametrize(
    ("clients", "throughput"), [(1, 0.588235), (2, 1.069182), (8, 1.985204), (200, 2.0)]
)
def test_closed_loop(clients: int, throughput: float) -> None:
    loop = closed_loop(clients, 1.0, [0.2, 0.5])
    assert loop.throughput_per_s == pytest.approx(throughput, abs=5e-7)


@given(st.integers(1, 8), st.floats(0, 5), st.lists(st.floats(0.05, 2), min_size=1, max_size=3))
def test_closed_loop_is_the_product_form(clients: int, think: float, services: list[float]) -> None:
    """X(N) = G(N - 1) / G(N), G summed over every way to place the clients (Buzen 1973)."""

    def constant(count: int) -> float:
        total = 0.0
        for at in product(range(count + 1), repeat=len(services)):
            thinking = count - sum(at)
            if thinking >= 0:
                total += think**thinking / factorial(thinking) * np.prod(np.power(services, at))
        return total

    loop = closed_loop(clients, think, services)
    assert loop.throughput_per_s == pytest.approx(constant(clients - 1) / constant(clients))
    bound = closed_loop_throughput_bound_per_s(clients, think, services)
    assert loop.throughput_per_s <= bound * (1 + 1e-12)
    assert loop.throughput_per_s * (think + loop.sojourn_s) == pytest.approx(clients)
    inside = clients - loop.throughput_per_s * think
    assert sum(loop.mean_in_station) == pytest.approx(inside, abs=1e-9)


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(1e-3, 1e3)), min_size=1, max_size=40))
def test_littles_law_holds_for_any_spans(spans: list[tuple[float, float]]) -> None:
    enter = np.array([start for start, _ in spans])
    leave = enter + [stay for _, stay in spans]
    assert littles_law_gap(enter, leave) < 1e-9


def test_number_integral_counts_those_present() -> None:
    """One until 1 s, two until 2 s, one until 4 s, none until 5 s, one until 6 s."""
    assert number_integral_s([0, 1, 5], [2, 4, 6]) == pytest.approx(1 + 2 + 2 + 0 + 1)
