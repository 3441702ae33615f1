"""Erlang, M/M/c, M/G/infinity and Kaufman-Roberts, against direct sums and chains."""

from itertools import product
from math import factorial, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gamma

from tests.support.markov import FEW, LOADS, TIMES, Moves, State, steady_state
from tests.support.theory.queues import (
    erlang_b,
    erlang_c,
    kaufman_roberts,
    mg_infinity_probability,
    mg_infinity_quantile,
    mm1_sojourn_s,
    mmc_wait_quantile_s,
    mmc_wait_s,
)


@pytest.mark.parametrize(
    ("servers", "load", "blocking"),
    [(7, 5, 0.1205186), (8, 8, 0.2355703), (16, 12, 0.0604126), (64, 60, 0.0603627)],
)
def test_erlang_b(servers: int, load: float, blocking: float) -> None:
    assert erlang_b(servers, load) == pytest.approx(blocking, abs=5e-8)


@given(st.integers(1, 60), st.floats(0.01, 80))
def test_erlang_b_is_the_direct_sum(servers: int, load: float) -> None:
    weights = [load**n / factorial(n) for n in range(servers + 1)]
    assert erlang_b(servers, load) == pytest.approx(weights[-1] / sum(weights))


def test_erlang_b_of_very_many_servers_neither_overflows_nor_vanishes() -> None:
    """At load = servers = c the loss tends to sqrt(2 / (pi c))."""
    assert erlang_b(10**5, 10**5) == pytest.approx(sqrt(2 / (np.pi * 1e5)), rel=3e-3)


def test_erlang_c_and_its_wait_are_those_of_the_birth_death_process() -> None:
    servers, rate = 8, 6.4

    def rates(state: State) -> Moves:
        (n,) = state
        return [((n + 1,), rate), ((n - 1,), float(min(n, servers)))]

    law = steady_state([(n,) for n in range(220)], rates)
    queue = float(law @ np.maximum(np.arange(220) - servers, 0))
    assert erlang_c(servers, rate) == pytest.approx(law[servers:].sum(), rel=1e-9)
    assert mmc_wait_s(servers, rate, 1.0) == pytest.approx(queue / rate, rel=1e-9)


def test_mmc_wait_quantile_is_that_of_the_mix_of_erlang_waits() -> None:
    """An arrival that finds n >= c present waits for n - c + 1 departures, c per service time."""
    servers, load, found = 3, 2.4, np.arange(400)
    weights = [load**n / factorial(n) for n in range(servers)]
    weights += [load**3 / 6 * 0.8**n for n in found]
    law = np.array(weights) / sum(weights)
    mark = mmc_wait_quantile_s(0.9, servers, load, 1.0)
    within = law[:3].sum() + law[3:] @ gamma.cdf(mark, found + 1, scale=1 / servers)
    assert within == pytest.approx(0.9, abs=1e-12)
    assert mmc_wait_quantile_s(0.99 * law[:3].sum(), servers, load, 1.0) == 0


@given(LOADS, TIMES)
def test_one_of_many_servers_is_mm1(load: float, service: float) -> None:
    rate = load / service
    sojourn = mmc_wait_s(1, rate, service) + service
    assert sojourn == pytest.approx(mm1_sojourn_s(rate, service))
    assert erlang_c(1, load) == pytest.approx(load)


def test_infinite_servers_are_the_limit_of_many_slots() -> None:
    """The loss system of the same load with far more slots than it needs, and its own quantile."""

    def rates(state: State) -> Moves:
        (n,) = state
        return [((n + 1,), 3.0), ((n - 1,), n / 2.0)]

    law = steady_state([(n,) for n in range(60)], rates)
    counts = [mg_infinity_probability(n, 3.0, 2.0) for n in range(60)]
    assert counts == pytest.approx(law.tolist(), abs=1e-12)
    assert mg_infinity_quantile(0.99, 3.0, 2.0) == int(np.searchsorted(law.cumsum(), 0.99))


def by_enumeration(capacity: int, sizes: list[int], loads: list[float]) -> list[float]:
    """Blocking from the product form over every state that fits."""
    ranges = [range(capacity // size + 1) for size in sizes]
    total, blocked = 0.0, np.zeros(len(sizes))
    for counts in product(*ranges):
        free = capacity - sum(n * size for n, size in zip(counts, sizes, strict=True))
        if free >= 0:
            terms = [a**n / factorial(n) for n, a in zip(counts, loads, strict=True)]
            total += float(np.prod(terms))
            blocked += np.prod(terms) * (np.array(sizes) > free)
    shares: list[float] = (blocked / total).tolist()
    return shares


@pytest.mark.parametrize(
    ("capacity", "sizes", "loads"),
    [(64, [4, 16], [6, 1.5]), (17, [3, 5, 2], [1.2, 0.4, 2.0]), (10, [4, 11], [2.0, 1.0])],
    ids=["two sizes of 64 blocks", "three odd sizes", "one that never fits"],
)
def test_kaufman_roberts_is_the_product_form(
    capacity: int, sizes: list[int], loads: list[float]
) -> None:
    blocking = kaufman_roberts(capacity, sizes, loads)
    assert blocking.tolist() == pytest.approx(by_enumeration(capacity, sizes, loads), rel=1e-12)


@given(FEW, st.integers(1, 40), st.floats(0.01, 60))
def test_kaufman_roberts_of_one_class_is_erlang_b(size: int, servers: int, load: float) -> None:
    (blocking,) = kaufman_roberts(size * servers + size - 1, [size], [load])
    assert blocking == pytest.approx(erlang_b(servers, load))


def test_kaufman_roberts_stands_loads_whose_weights_overflow() -> None:
    (blocking,) = kaufman_roberts(3000, [1], [2900.0])
    assert blocking == pytest.approx(erlang_b(3000, 2900.0))
