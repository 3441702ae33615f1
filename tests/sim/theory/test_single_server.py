"""One server: against its chains, mixtures of sojourns, and simulated runs."""

from itertools import product
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from scipy.stats import gamma, poisson

from tests.support.markov import LOADS, TIMES, Moves, State, stationary, steady_state
from tests.support.theory.queues import (
    md1_wait_s,
    mg1_wait_s,
    mm1_sojourn_quantile_s,
    mm1_sojourn_s,
    mm1_wait_relative_error,
    processor_sharing_sojourn_s,
)


@pytest.mark.parametrize(("load", "wait"), [(0.5, 0.5), (0.8, 2.0), (0.9, 4.5)])
def test_md1_wait(load: float, wait: float) -> None:
    assert md1_wait_s(load, 1.0) == pytest.approx(wait, rel=1e-12)


def test_mm1_quantile() -> None:
    assert mm1_sojourn_quantile_s(0.99, 0.8, 1.0) == pytest.approx(23.02585, abs=5e-6)


GEOMETRIC_128 = (128 * 0.02, sqrt(127 / 128))
UNIFORM_256 = (128.5 * 0.02, float(np.arange(1, 257).std() / 128.5))


@pytest.mark.parametrize(
    ("law", "load", "wait"),
    [(GEOMETRIC_128, 0.5, 2.55), (GEOMETRIC_128, 0.8, 10.2), (UNIFORM_256, 0.5, 1.71)],
    ids=["geometric at 50 %", "geometric at 80 %", "uniform at 50 %"],
)
def test_pollaczek_khinchine_wait(law: tuple[float, float], load: float, wait: float) -> None:
    service, cv = law
    assert mg1_wait_s(load / service, service, cv) == pytest.approx(wait, rel=1e-4)


@given(LOADS, TIMES)
def test_exponential_service_makes_mg1_an_mm1(load: float, service: float) -> None:
    wait = mg1_wait_s(load / service, service, 1.0)
    assert wait + service == pytest.approx(mm1_sojourn_s(load / service, service))


def test_mg1_wait_is_that_of_the_chain_at_departures() -> None:
    """Departures leave behind what arrivals find, so its mean is the mean number in system."""
    sizes, shares, rate, levels = np.array([0.5, 3.0]), np.array([0.8, 0.2]), 0.6, 200
    come = shares @ poisson.pmf(np.arange(levels), rate * sizes[:, None])
    moves = np.zeros((levels, levels))
    for left in range(levels):
        start = max(left - 1, 0)
        moves[left, start:] = come[: levels - start]
        moves[left, -1] += 1 - moves[left].sum()
    present = float(stationary(moves) @ np.arange(levels))
    mean = float(shares @ sizes)
    cv = sqrt(float(shares @ sizes**2) - mean**2) / mean
    assert present / rate == pytest.approx(mg1_wait_s(rate, mean, cv) + mean, rel=1e-9)


def test_mm1_quantile_is_that_of_the_mix_of_erlang_sojourns() -> None:
    """An arrival that finds n present stays n + 1 services."""
    load, mark = 0.7, mm1_sojourn_quantile_s(0.95, 0.7, 1.0)
    found = np.arange(400)
    within = (1 - load) * load**found @ gamma.cdf(mark, found + 1)
    assert within == pytest.approx(0.95, abs=1e-12)


@pytest.mark.parametrize(
    ("load", "percents"),
    [(0.5, (5.4, 1.7, 0.54)), (0.8, (11.1, 3.5, 1.1)), (0.9, (21.1, 6.7, 2.1))],
)
def test_relative_error_of_mm1_waits(load: float, percents: tuple[float, ...]) -> None:
    for requests, percent in zip((10**4, 10**5, 10**6), percents, strict=True):
        error = mm1_wait_relative_error(load, requests)
        assert round(100 * error, 1 if percent > 1 else 2) == percent


def test_relative_error_of_mm1_waits_is_the_spread_of_simulated_runs() -> None:
    """2,000 stationary runs of 4,000 requests by Lindley's recursion; 4 s.e. of a deviation."""
    rng, load, runs, requests = np.random.default_rng(11), 0.5, 2000, 4000
    wait = rng.exponential(1 / (1 - load), runs) * (rng.random(runs) < load)
    total = np.zeros(runs)
    for _ in range(requests):
        total += wait
        wait = np.maximum(0, wait + rng.exponential(1, runs) - rng.exponential(1 / load, runs))
    spread = (total / requests).std(ddof=1) / (load / (1 - load))
    error = mm1_wait_relative_error(load, requests)
    assert abs(spread / error - 1) < 4 / sqrt(2 * runs)


@given(LOADS, TIMES)
def test_processor_sharing_means_as_long_as_mm1(load: float, mean: float) -> None:
    sharing = processor_sharing_sojourn_s(mean, load / mean, mean)
    assert sharing == pytest.approx(mm1_sojourn_s(load / mean, mean))


def test_processor_sharing_of_two_kinds_is_that_of_its_markov_process() -> None:
    """Hyperexponential sizes: the sojourn of each kind is its size over 1 - rho."""
    arrive, leave = (0.5, 0.1), (2.0, 0.4)
    levels = 60

    def rates(state: State) -> Moves:
        a, b = state
        busy = max(a + b, 1)
        return [
            ((a + 1, b), arrive[0]),
            ((a, b + 1), arrive[1]),
            ((a - 1, b), leave[0] * a / busy),
            ((a, b - 1), leave[1] * b / busy),
        ]

    states: list[State] = list(product(range(levels), repeat=2))
    present = steady_state(states, rates) @ np.array(states)
    mean = sum(a / m for a, m in zip(arrive, leave, strict=True)) / sum(arrive)
    for kind in (0, 1):
        sojourn = processor_sharing_sojourn_s(1 / leave[kind], sum(arrive), mean)
        assert present[kind] / arrive[kind] == pytest.approx(sojourn, rel=1e-6)
