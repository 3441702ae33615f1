"""Batches: against embedded chains, simulated arrivals and sums over all batches."""

from itertools import product
from math import comb, exp, sqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import poisson

from tests.support.markov import FEW, LOADS, TIMES, FloatArray, stationary
from tests.support.theory.batches import (
    batch_service,
    batch_service_bounds_s,
    bounded_batch_service,
    exponential_slot_efficiency,
    gated_idle_probability,
    gated_mean_in_system,
    gated_sojourn_s,
    geometric_slot_efficiency,
    mean_longest,
    sampled_slot_efficiency,
    static_batch_makespan_s,
    uniform_slot_efficiency,
    uniform_slot_efficiency_limit,
)
from tests.support.theory.queues import md1_wait_s

SHARES = st.floats(0.0, 0.99)


def embedded_batches(rate: float, alpha: float, fixed: float, bound: int, size: int) -> FloatArray:
    """Law of those left behind, straight from the transition matrix of the truncated chain."""
    moves = np.zeros((size, size))
    for left in range(size):
        batch = min(max(left, 1), bound)
        rest = max(left, 1) - batch
        come = poisson.pmf(np.arange(size - rest), rate * (alpha * batch + fixed))
        moves[left, rest:] = come
        moves[left, -1] += 1 - come.sum()
    return stationary(moves)


BATCHES = [(10.0, 0.02, 0.1), (30.0, 0.02, 0.05), (0.5, 0.1, 1.0), (6.0, 0.0, 0.4), (4.0, 0.2, 0.0)]


@pytest.mark.parametrize(("rate", "alpha", "fixed"), BATCHES)
def test_unbounded_batches_are_those_of_the_chain(rate: float, alpha: float, fixed: float) -> None:
    """E[W] from the chain by the formula over its first two moments."""
    size = 220
    law = embedded_batches(rate, alpha, fixed, size, size)
    batch = np.maximum(np.arange(size), 1)
    first, second = float(law @ batch), float(law @ batch**2)
    sojourn = (second - first) / (2 * rate * first) + alpha * second / first + fixed
    queue = batch_service(rate, alpha, fixed)
    assert queue.mean_batch == pytest.approx(first, rel=1e-9)
    assert queue.sojourn_s == pytest.approx(sojourn, rel=1e-9)


@given(LOADS, TIMES, st.floats(0.01, 0.99))
def test_inoues_bounds_hold_and_meet_where_they_say(load: float, alpha: float, part: float) -> None:
    rate, fixed = load / alpha, alpha * part / (1 - part)
    light, heavy = batch_service_bounds_s(rate, alpha, fixed)
    assert batch_service(rate, alpha, fixed).sojourn_s <= min(light, heavy) * (1 + 1e-12)
    assume(abs(rate * (alpha + fixed) - 1) > 1e-6)
    assert (light < heavy) == (rate * (alpha + fixed) < 1)


def test_inoues_bound_is_close_when_busy_and_exact_when_never() -> None:
    light, _ = batch_service_bounds_s(1e-9, 0.02, 0.1)
    assert light == pytest.approx(0.12)
    assert batch_service(1e-9, 0.02, 0.1).sojourn_s == pytest.approx(0.12)
    _, heavy = batch_service_bounds_s(49.0, 0.02, 0.1)
    assert batch_service(49.0, 0.02, 0.1).sojourn_s == pytest.approx(heavy, rel=1e-3)


@pytest.mark.parametrize("bound", [3, 10**6])
def test_batch_sojourn_is_that_of_simulated_arrivals(bound: int) -> None:
    """Event by event; the mean of 20 runs within Student's 99.9 % interval, itself below 5 %."""
    means = [simulated_batches_s(np.random.default_rng(seed), bound) for seed in range(20)]
    half = 3.883 * np.std(means, ddof=1) / sqrt(20)
    exact = batch_service(20.0, 0.02, 0.05).sojourn_s
    if bound == 3:
        exact = bounded_batch_service(20.0, 0.02, 0.05, bound).sojourn_s
    assert half < 0.05 * exact
    assert abs(np.mean(means) - exact) < half


def simulated_batches_s(rng: np.random.Generator, bound: int) -> float:
    arrivals = np.cumsum(rng.exponential(1 / 20.0, 5000))
    now, first, sojourns = 0.0, 0, 0.0
    while first < len(arrivals):
        now = max(now, float(arrivals[first]))
        last = min(int(np.searchsorted(arrivals, now, side="right")), first + bound)
        now += 0.02 * (last - first) + 0.05
        sojourns += float((now - arrivals[first:last]).sum())
        first = last
    return sojourns / len(arrivals)


@given(LOADS, TIMES, SHARES)
def test_batches_of_one_are_md1(load: float, service: float, part: float) -> None:
    rate = load / service
    queue = bounded_batch_service(rate, part * service, (1 - part) * service, 1)
    assert queue.mean_batch == pytest.approx(1.0)
    wait = md1_wait_s(rate, service)
    assert queue.sojourn_s == pytest.approx(wait + service, rel=1e-9)


@pytest.mark.parametrize("bound", [2, 3, 7])
def test_bounded_batches_are_those_of_the_chain(bound: int) -> None:
    """Time average of the number present, idle spells included, and Little's law."""
    rate, alpha, fixed, size = 10.0, 0.02, 0.1, 260
    law = embedded_batches(rate, alpha, fixed, bound, size)
    present = np.maximum(np.arange(size), 1)
    batch = np.minimum(present, bound)
    service = alpha * batch + fixed
    idle = law[0] / rate
    number = law @ (present * service + rate * service**2 / 2) / (law @ service + idle)
    queue = bounded_batch_service(rate, alpha, fixed, bound)
    assert queue.sojourn_s == pytest.approx(number / rate, rel=1e-8)
    assert queue.mean_batch == pytest.approx(rate * (law @ service + idle), rel=1e-8)


@pytest.mark.parametrize(("rate", "alpha", "fixed"), BATCHES)
def test_a_bound_that_is_never_met_changes_nothing(rate: float, alpha: float, fixed: float) -> None:
    bounded = bounded_batch_service(rate, alpha, fixed, 150)
    free = batch_service(rate, alpha, fixed)
    assert bounded.sojourn_s == pytest.approx(free.sojourn_s, rel=1e-9)
    assert bounded.mean_batch == pytest.approx(free.mean_batch, rel=1e-9)


def test_heavy_large_batches_are_solved_where_idleness_underflows() -> None:
    """Always busy: on average as many come during a batch as it has, 148.5 + 0.45 of them."""
    queue = bounded_batch_service(900, 5e-4, 0.165, 450)
    assert queue.mean_batch == pytest.approx(148.5 / 0.55, rel=1e-9)
    assert queue.sojourn_s == pytest.approx(batch_service(900, 5e-4, 0.165).sojourn_s)


@given(st.floats(0.01, 30), TIMES)
def test_one_gated_step_is_batch_service_without_a_slope(per_step: float, step: float) -> None:
    gated = gated_sojourn_s(per_step / step, step, 1)
    assert gated == pytest.approx(batch_service(per_step / step, 0.0, step).sojourn_s)


@pytest.mark.parametrize(("rate", "steps"), [(0.3, 1), (0.7, 4), (2.0, 3)])
def test_gated_idleness_is_that_of_the_chain_of_empty_steps(rate: float, steps: int) -> None:
    """States: the run of steps without arrivals, absorbed at ``steps``; the step takes 1 s."""
    empty = exp(-rate)
    stay = np.diag(np.full(steps - 1, empty), 1)
    stay[:, 0] += 1 - empty
    busy = float(np.linalg.solve(np.eye(steps) - stay, np.ones(steps))[0])
    idle = gated_idle_probability(rate, 1.0, steps)
    assert idle == pytest.approx(1 / rate / (1 / rate + busy))


def test_gated_batches_sojourn_and_number_are_those_of_simulated_arrivals() -> None:
    rate, steps = 0.4, 3
    means = [simulated_gated_steps(np.random.default_rng(s), rate, steps) for s in range(20)]
    half = 3.883 * np.std(means, ddof=1) / sqrt(20)
    exact = gated_sojourn_s(rate, 1.0, steps)
    assert half < 0.1 * (exact - steps)
    assert abs(np.mean(means) - exact) < half
    assert gated_mean_in_system(rate, 1.0, steps) == pytest.approx(rate * exact)


def simulated_gated_steps(rng: np.random.Generator, rate: float, steps: int) -> float:
    """Mean sojourn in steps of 1 s; boundaries count from the start of the busy spell."""
    sojourns, start, end = [], 0.0, 0.0
    for now in np.cumsum(rng.exponential(1 / rate, 4000)).tolist():
        if now >= end:
            start = now
        joins = start + np.ceil(now - start)
        end = joins + steps
        sojourns.append(end - now)
    return float(np.mean(sojourns))


@pytest.mark.parametrize(("rate", "steps"), [(50.0, 3), (900.0, 500)])
def test_a_gate_that_never_closes_is_infinite_servers(rate: float, steps: int) -> None:
    assert gated_idle_probability(rate, 1.0, steps) == pytest.approx(0, abs=1e-60)
    number = gated_mean_in_system(rate, 1.0, steps)
    assert number == pytest.approx(rate * steps + rate / 2)


@given(FEW, FEW, FEW)
def test_static_makespan_is_the_sum_of_its_steps(batch: int, prompt: int, output: int) -> None:
    steps = [4e-3 + 3e-5 * batch * (prompt + j) for j in range(1, output)]
    makespan = static_batch_makespan_s(
        batch, prompt, output, prefill_s=0.1, step_s=4e-3, per_context_token_s=3e-5
    )
    assert makespan == pytest.approx(0.1 + sum(steps), rel=1e-12)


@pytest.mark.parametrize(
    ("efficiency", "expected"),
    [
        (exponential_slot_efficiency(8), 0.36794),
        (uniform_slot_efficiency_limit(8), 9 / 16),
        (uniform_slot_efficiency(8, 10**6), 9 / 16),
        (geometric_slot_efficiency(8, 1e5), 0.36794),
        (exponential_slot_efficiency(1), 1.0),
        (geometric_slot_efficiency(8, 1.0), 1.0),
        (uniform_slot_efficiency(8, 1), 1.0),
    ],
    ids=[
        "exponential",
        "uniform limit",
        "uniform tends to it",
        "geometric tends to exponential",
        "alone",
        "geometric of one",
        "uniform of one",
    ],
)
def test_slot_efficiency(efficiency: float, expected: float) -> None:
    assert efficiency == pytest.approx(expected, abs=5e-6)


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_slot_efficiency_of_a_sample_is_that_of_all_batches_drawn_from_it(batch: int) -> None:
    lengths = [7, 1, 3, 3, 12]
    longest = float(np.mean([max(drawn) for drawn in product(lengths, repeat=batch)]))
    assert mean_longest(lengths, batch) == pytest.approx(longest, rel=1e-12)
    assert sampled_slot_efficiency(lengths, batch) == pytest.approx(5.2 / longest)


@given(FEW, st.integers(1, 50))
def test_uniform_slot_efficiency_is_that_of_its_sample(batch: int, longest: int) -> None:
    sampled = sampled_slot_efficiency(np.arange(1, longest + 1), batch)
    assert uniform_slot_efficiency(batch, longest) == pytest.approx(sampled)


@given(FEW, st.floats(1.01, 200))
def test_geometric_slot_efficiency_is_the_alternating_sum(batch: int, mean: float) -> None:
    """E[max] = sum over j of (-1)^(j + 1) C(b, j) / (1 - q^j)."""
    q = 1 - 1 / mean
    longest = sum(-((-1) ** j) * comb(batch, j) / (1 - q**j) for j in range(1, batch + 1))
    efficiency = geometric_slot_efficiency(batch, mean)
    assert efficiency == pytest.approx(mean / longest, rel=1e-7)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=30), FEW)
def test_larger_static_batches_never_waste_less(lengths: list[int], batch: int) -> None:
    smaller, larger = (sampled_slot_efficiency(lengths, b) for b in (batch, batch + 1))
    assert 1 / (batch + 1) * (1 - 1e-12) <= larger <= smaller * (1 + 1e-12)
