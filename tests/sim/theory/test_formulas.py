"""Closed forms meet the published numbers, and each one an independent computation."""

from collections.abc import Callable
from itertools import product
from math import comb, exp, factorial, inf, nan, sqrt

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import spsolve
from scipy.stats import gamma, poisson

import sim.theory as theory
from policies.config import PolicyConfig, Reservation
from policies.kv.contiguous import ContiguousKV
from policies.sequence import Sequence
from sim.theory import PriorityClass, TheoryError
from workloads.errors import ServetwinError

FloatArray = npt.NDArray[np.float64]
State = tuple[int, ...]
Moves = list[tuple[State, float]]
LOADS = st.floats(0.01, 0.95)
TIMES = st.floats(1e-3, 1e3)
SHARES = st.floats(0.0, 0.99)
FEW = st.integers(1, 12)


def stationary(moves: FloatArray) -> FloatArray:
    """Stationary law of a small chain from its matrix of transition probabilities."""
    size = len(moves)
    equations = np.vstack([(np.eye(size) - moves).T, np.ones(size)])
    law: FloatArray = np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0))[0]
    return law


def steady_state(states: list[State], rates: Callable[[State], Moves]) -> FloatArray:
    """Stationary law of a Markov process; moves that leave the listed states are dropped."""
    place = {state: i for i, state in enumerate(states)}
    flow = [
        (place[state], place[to], rate)
        for state in states
        for to, rate in rates(state)
        if to in place and rate > 0
    ]
    source, target, rate = (np.array(column) for column in zip(*flow, strict=True))
    size = len(states)
    balance = sparse.coo_matrix((rate, (target, source)), (size, size)).tolil()
    balance.setdiag(-np.bincount(source, rate, size))
    balance[0, :] = 1.0
    law: FloatArray = spsolve(balance.tocsr(), np.eye(1, size)[0])
    return law


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


# --- one server ------------------------------------------------------------------------------


@pytest.mark.parametrize(("load", "wait"), [(0.5, 0.5), (0.8, 2.0), (0.9, 4.5)])
def test_md1_wait(load: float, wait: float) -> None:
    assert theory.md1_wait_s(load, 1.0) == pytest.approx(wait, rel=1e-12)


def test_mm1_quantile() -> None:
    assert theory.mm1_sojourn_quantile_s(0.99, 0.8, 1.0) == pytest.approx(23.02585, abs=5e-6)


GEOMETRIC_128 = (128 * 0.02, sqrt(127 / 128))
UNIFORM_256 = (128.5 * 0.02, float(np.arange(1, 257).std() / 128.5))


@pytest.mark.parametrize(
    ("law", "load", "wait"),
    [(GEOMETRIC_128, 0.5, 2.55), (GEOMETRIC_128, 0.8, 10.2), (UNIFORM_256, 0.5, 1.71)],
    ids=["geometric at 50 %", "geometric at 80 %", "uniform at 50 %"],
)
def test_pollaczek_khinchine_wait(law: tuple[float, float], load: float, wait: float) -> None:
    service, cv = law
    assert theory.mg1_wait_s(load / service, service, cv) == pytest.approx(wait, rel=1e-4)


@given(LOADS, TIMES)
def test_exponential_service_makes_mg1_an_mm1(load: float, service: float) -> None:
    wait = theory.mg1_wait_s(load / service, service, 1.0)
    assert wait + service == pytest.approx(theory.mm1_sojourn_s(load / service, service))


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
    assert present / rate == pytest.approx(theory.mg1_wait_s(rate, mean, cv) + mean, rel=1e-9)


def test_mm1_quantile_is_that_of_the_mix_of_erlang_sojourns() -> None:
    """An arrival that finds n present stays n + 1 services."""
    load, mark = 0.7, theory.mm1_sojourn_quantile_s(0.95, 0.7, 1.0)
    found = np.arange(400)
    within = (1 - load) * load**found @ gamma.cdf(mark, found + 1)
    assert within == pytest.approx(0.95, abs=1e-12)


@pytest.mark.parametrize(
    ("load", "percents"),
    [(0.5, (5.4, 1.7, 0.54)), (0.8, (11.1, 3.5, 1.1)), (0.9, (21.1, 6.7, 2.1))],
)
def test_relative_error_of_mm1_waits(load: float, percents: tuple[float, ...]) -> None:
    for requests, percent in zip((10**4, 10**5, 10**6), percents, strict=True):
        error = theory.mm1_wait_relative_error(load, requests)
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
    error = theory.mm1_wait_relative_error(load, requests)
    assert abs(spread / error - 1) < 4 / sqrt(2 * runs)


@given(LOADS, TIMES)
def test_processor_sharing_means_as_long_as_mm1(load: float, mean: float) -> None:
    sharing = theory.processor_sharing_sojourn_s(mean, load / mean, mean)
    assert sharing == pytest.approx(theory.mm1_sojourn_s(load / mean, mean))


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
        sojourn = theory.processor_sharing_sojourn_s(1 / leave[kind], sum(arrive), mean)
        assert present[kind] / arrive[kind] == pytest.approx(sojourn, rel=1e-6)


# --- priorities ------------------------------------------------------------------------------

SJF_RATE = 0.7 / 1.8


def test_shortest_job_first_of_two_sizes() -> None:
    waits = theory.sjf_waits_s(SJF_RATE, [1, 9], [0.9, 0.1])
    assert waits[0] == pytest.approx(2.692308, abs=5e-7)
    assert waits @ [0.9, 0.1] == pytest.approx(3.320513, abs=5e-7)
    fcfs = theory.mg1_wait_s(SJF_RATE, 1.8, sqrt(9 - 1.8**2) / 1.8)
    assert fcfs == pytest.approx(5.83333, abs=5e-6)


def test_shortest_job_first_answers_in_the_order_asked_and_joins_equal_sizes() -> None:
    waits = theory.sjf_waits_s(SJF_RATE, [9, 1, 1], [0.1, 0.5, 0.4])
    plain = theory.sjf_waits_s(SJF_RATE, [1, 9], [0.9, 0.1])
    assert waits == pytest.approx(plain[[1, 0, 0]])


def test_priorities_wait_as_their_markov_process_says() -> None:
    """Two exponential classes; the state is (urgent, others, who is served: 0, 1, or 2 nobody)."""
    arrive, serve, levels = (0.3, 0.2), (1.5, 0.8), 45

    def next_served(a: int, b: int) -> int:
        return 0 if a else 1 if b else 2

    def rates(state: State) -> Moves:
        a, b, who = state
        moves: Moves = [
            ((a + 1, b, 0 if who == 2 else who), arrive[0]),
            ((a, b + 1, 1 if who == 2 else who), arrive[1]),
        ]
        if who < 2:
            a, b = a - (who == 0), b - (who == 1)
            moves.append(((a, b, next_served(a, b)), serve[who]))
        return moves

    states: list[State] = [(0, 0, 2)]
    pairs = product(range(levels), range(levels))
    states += [(a, b, who) for a, b in pairs for who in (0, 1) if (a, b)[who]]
    present = steady_state(states, rates) @ np.array(states)[:, :2]
    classes = [PriorityClass(a, 1 / s, 1.0) for a, s in zip(arrive, serve, strict=True)]
    waits = theory.priority_waits_s(classes)
    for kind in (0, 1):
        sojourn = waits[kind] + 1 / serve[kind]
        assert present[kind] / arrive[kind] == pytest.approx(sojourn, rel=1e-6)


@given(st.lists(st.tuples(st.floats(0.05, 1), TIMES, st.floats(0, 3)), min_size=1, max_size=5))
def test_priorities_conserve_the_work_that_waits(drawn: list[tuple[float, float, float]]) -> None:
    """Kleinrock's law: sum of load * wait is that of first come, first served, in any order."""
    total = 1.25 * sum(load for load, _, _ in drawn)
    classes = [PriorityClass(load / total / s, s, cv) for load, s, cv in drawn]
    loads = np.array([c.rate_per_s * c.service_s for c in classes])
    residual = sum(c.rate_per_s * c.service_s**2 * (1 + c.service_cv**2) / 2 for c in classes)
    fcfs = residual / (1 - loads.sum()) * loads.sum()
    assert loads @ theory.priority_waits_s(classes) == pytest.approx(fcfs)
    assert loads[::-1] @ theory.priority_waits_s(classes[::-1]) == pytest.approx(fcfs)


# --- many servers, loss ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("servers", "load", "blocking"),
    [(7, 5, 0.1205186), (8, 8, 0.2355703), (16, 12, 0.0604126), (64, 60, 0.0603627)],
)
def test_erlang_b(servers: int, load: float, blocking: float) -> None:
    assert theory.erlang_b(servers, load) == pytest.approx(blocking, abs=5e-8)


@given(st.integers(1, 60), st.floats(0.01, 80))
def test_erlang_b_is_the_direct_sum(servers: int, load: float) -> None:
    weights = [load**n / factorial(n) for n in range(servers + 1)]
    assert theory.erlang_b(servers, load) == pytest.approx(weights[-1] / sum(weights))


def test_erlang_b_of_very_many_servers_neither_overflows_nor_vanishes() -> None:
    """At load = servers = c the loss tends to sqrt(2 / (pi c))."""
    assert theory.erlang_b(10**5, 10**5) == pytest.approx(sqrt(2 / (np.pi * 1e5)), rel=3e-3)


def test_erlang_c_and_its_wait_are_those_of_the_birth_death_process() -> None:
    servers, rate = 8, 6.4

    def rates(state: State) -> Moves:
        (n,) = state
        return [((n + 1,), rate), ((n - 1,), float(min(n, servers)))]

    law = steady_state([(n,) for n in range(220)], rates)
    queue = float(law @ np.maximum(np.arange(220) - servers, 0))
    assert theory.erlang_c(servers, rate) == pytest.approx(law[servers:].sum(), rel=1e-9)
    assert theory.mmc_wait_s(servers, rate, 1.0) == pytest.approx(queue / rate, rel=1e-9)


def test_mmc_wait_quantile_is_that_of_the_mix_of_erlang_waits() -> None:
    """An arrival that finds n >= c present waits for n - c + 1 departures, c per service time."""
    servers, load, found = 3, 2.4, np.arange(400)
    weights = [load**n / factorial(n) for n in range(servers)]
    weights += [load**3 / 6 * 0.8**n for n in found]
    law = np.array(weights) / sum(weights)
    mark = theory.mmc_wait_quantile_s(0.9, servers, load, 1.0)
    within = law[:3].sum() + law[3:] @ gamma.cdf(mark, found + 1, scale=1 / servers)
    assert within == pytest.approx(0.9, abs=1e-12)
    assert theory.mmc_wait_quantile_s(0.99 * law[:3].sum(), servers, load, 1.0) == 0


@given(LOADS, TIMES)
def test_one_of_many_servers_is_mm1(load: float, service: float) -> None:
    rate = load / service
    sojourn = theory.mmc_wait_s(1, rate, service) + service
    assert sojourn == pytest.approx(theory.mm1_sojourn_s(rate, service))
    assert theory.erlang_c(1, load) == pytest.approx(load)


def test_infinite_servers_are_the_limit_of_many_slots() -> None:
    """The loss system of the same load with far more slots than it needs, and its own quantile."""

    def rates(state: State) -> Moves:
        (n,) = state
        return [((n + 1,), 3.0), ((n - 1,), n / 2.0)]

    law = steady_state([(n,) for n in range(60)], rates)
    counts = [theory.mg_infinity_probability(n, 3.0, 2.0) for n in range(60)]
    assert counts == pytest.approx(law.tolist(), abs=1e-12)
    assert theory.mg_infinity_quantile(0.99, 3.0, 2.0) == int(np.searchsorted(law.cumsum(), 0.99))


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
    blocking = theory.kaufman_roberts(capacity, sizes, loads)
    assert blocking.tolist() == pytest.approx(by_enumeration(capacity, sizes, loads), rel=1e-12)


@given(FEW, st.integers(1, 40), st.floats(0.01, 60))
def test_kaufman_roberts_of_one_class_is_erlang_b(size: int, servers: int, load: float) -> None:
    (blocking,) = theory.kaufman_roberts(size * servers + size - 1, [size], [load])
    assert blocking == pytest.approx(theory.erlang_b(servers, load))


def test_kaufman_roberts_stands_loads_whose_weights_overflow() -> None:
    (blocking,) = theory.kaufman_roberts(3000, [1], [2900.0])
    assert blocking == pytest.approx(theory.erlang_b(3000, 2900.0))


# --- batches ---------------------------------------------------------------------------------

BATCHES = [(10.0, 0.02, 0.1), (30.0, 0.02, 0.05), (0.5, 0.1, 1.0), (6.0, 0.0, 0.4), (4.0, 0.2, 0.0)]


@pytest.mark.parametrize(("rate", "alpha", "fixed"), BATCHES)
def test_unbounded_batches_are_those_of_the_chain(rate: float, alpha: float, fixed: float) -> None:
    """E[W] from the chain by the formula over its first two moments."""
    size = 220
    law = embedded_batches(rate, alpha, fixed, size, size)
    batch = np.maximum(np.arange(size), 1)
    first, second = float(law @ batch), float(law @ batch**2)
    sojourn = (second - first) / (2 * rate * first) + alpha * second / first + fixed
    queue = theory.batch_service(rate, alpha, fixed)
    assert queue.mean_batch == pytest.approx(first, rel=1e-9)
    assert queue.sojourn_s == pytest.approx(sojourn, rel=1e-9)


@given(LOADS, TIMES, st.floats(0.01, 0.99))
def test_inoues_bounds_hold_and_meet_where_they_say(load: float, alpha: float, part: float) -> None:
    rate, fixed = load / alpha, alpha * part / (1 - part)
    light, heavy = theory.batch_service_bounds_s(rate, alpha, fixed)
    assert theory.batch_service(rate, alpha, fixed).sojourn_s <= min(light, heavy) * (1 + 1e-12)
    assume(abs(rate * (alpha + fixed) - 1) > 1e-6)
    assert (light < heavy) == (rate * (alpha + fixed) < 1)


def test_inoues_bound_is_close_when_busy_and_exact_when_never() -> None:
    light, _ = theory.batch_service_bounds_s(1e-9, 0.02, 0.1)
    assert light == pytest.approx(0.12)
    assert theory.batch_service(1e-9, 0.02, 0.1).sojourn_s == pytest.approx(0.12)
    _, heavy = theory.batch_service_bounds_s(49.0, 0.02, 0.1)
    assert theory.batch_service(49.0, 0.02, 0.1).sojourn_s == pytest.approx(heavy, rel=1e-3)


@pytest.mark.parametrize("bound", [3, 10**6])
def test_batch_sojourn_is_that_of_simulated_arrivals(bound: int) -> None:
    """Event by event; the mean of 20 runs within Student's 99.9 % interval, itself below 5 %."""
    means = [simulated_batches_s(np.random.default_rng(seed), bound) for seed in range(20)]
    half = 3.883 * np.std(means, ddof=1) / sqrt(20)
    exact = theory.batch_service(20.0, 0.02, 0.05).sojourn_s
    if bound == 3:
        exact = theory.bounded_batch_service(20.0, 0.02, 0.05, bound).sojourn_s
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
    queue = theory.bounded_batch_service(rate, part * service, (1 - part) * service, 1)
    assert queue.mean_batch == pytest.approx(1.0)
    wait = theory.md1_wait_s(rate, service)
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
    queue = theory.bounded_batch_service(rate, alpha, fixed, bound)
    assert queue.sojourn_s == pytest.approx(number / rate, rel=1e-8)
    assert queue.mean_batch == pytest.approx(rate * (law @ service + idle), rel=1e-8)


@pytest.mark.parametrize(("rate", "alpha", "fixed"), BATCHES)
def test_a_bound_that_is_never_met_changes_nothing(rate: float, alpha: float, fixed: float) -> None:
    bounded = theory.bounded_batch_service(rate, alpha, fixed, 150)
    free = theory.batch_service(rate, alpha, fixed)
    assert bounded.sojourn_s == pytest.approx(free.sojourn_s, rel=1e-9)
    assert bounded.mean_batch == pytest.approx(free.mean_batch, rel=1e-9)


def test_heavy_large_batches_are_solved_where_idleness_underflows() -> None:
    """Always busy: on average as many come during a batch as it has, 148.5 + 0.45 of them."""
    queue = theory.bounded_batch_service(900, 5e-4, 0.165, 450)
    assert queue.mean_batch == pytest.approx(148.5 / 0.55, rel=1e-9)
    assert queue.sojourn_s == pytest.approx(theory.batch_service(900, 5e-4, 0.165).sojourn_s)


# --- gated -----------------------------------------------------------------------------------


@given(st.floats(0.01, 30), TIMES)
def test_one_gated_step_is_batch_service_without_a_slope(per_step: float, step: float) -> None:
    gated = theory.gated_sojourn_s(per_step / step, step, 1)
    assert gated == pytest.approx(theory.batch_service(per_step / step, 0.0, step).sojourn_s)


@pytest.mark.parametrize(("rate", "steps"), [(0.3, 1), (0.7, 4), (2.0, 3)])
def test_gated_idleness_is_that_of_the_chain_of_empty_steps(rate: float, steps: int) -> None:
    """States: the run of steps without arrivals, absorbed at ``steps``; the step takes 1 s."""
    empty = exp(-rate)
    stay = np.diag(np.full(steps - 1, empty), 1)
    stay[:, 0] += 1 - empty
    busy = float(np.linalg.solve(np.eye(steps) - stay, np.ones(steps))[0])
    idle = theory.gated_idle_probability(rate, 1.0, steps)
    assert idle == pytest.approx(1 / rate / (1 / rate + busy))


def test_gated_batches_sojourn_and_number_are_those_of_simulated_arrivals() -> None:
    rate, steps = 0.4, 3
    means = [simulated_gated_steps(np.random.default_rng(s), rate, steps) for s in range(20)]
    half = 3.883 * np.std(means, ddof=1) / sqrt(20)
    exact = theory.gated_sojourn_s(rate, 1.0, steps)
    assert half < 0.1 * (exact - steps)
    assert abs(np.mean(means) - exact) < half
    assert theory.gated_mean_in_system(rate, 1.0, steps) == pytest.approx(rate * exact)


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
    assert theory.gated_idle_probability(rate, 1.0, steps) == pytest.approx(0, abs=1e-60)
    number = theory.gated_mean_in_system(rate, 1.0, steps)
    assert number == pytest.approx(rate * steps + rate / 2)


# --- static batches --------------------------------------------------------------------------


@given(FEW, FEW, FEW)
def test_static_makespan_is_the_sum_of_its_steps(batch: int, prompt: int, output: int) -> None:
    steps = [4e-3 + 3e-5 * batch * (prompt + j) for j in range(1, output)]
    makespan = theory.static_batch_makespan_s(
        batch, prompt, output, prefill_s=0.1, step_s=4e-3, per_context_token_s=3e-5
    )
    assert makespan == pytest.approx(0.1 + sum(steps), rel=1e-12)


@pytest.mark.parametrize(
    ("efficiency", "expected"),
    [
        (theory.exponential_slot_efficiency(8), 0.36794),
        (theory.uniform_slot_efficiency_limit(8), 9 / 16),
        (theory.uniform_slot_efficiency(8, 10**6), 9 / 16),
        (theory.geometric_slot_efficiency(8, 1e5), 0.36794),
        (theory.exponential_slot_efficiency(1), 1.0),
        (theory.geometric_slot_efficiency(8, 1.0), 1.0),
        (theory.uniform_slot_efficiency(8, 1), 1.0),
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
    assert theory.mean_longest(lengths, batch) == pytest.approx(longest, rel=1e-12)
    assert theory.sampled_slot_efficiency(lengths, batch) == pytest.approx(5.2 / longest)


@given(FEW, st.integers(1, 50))
def test_uniform_slot_efficiency_is_that_of_its_sample(batch: int, longest: int) -> None:
    sampled = theory.sampled_slot_efficiency(np.arange(1, longest + 1), batch)
    assert theory.uniform_slot_efficiency(batch, longest) == pytest.approx(sampled)


@given(FEW, st.floats(1.01, 200))
def test_geometric_slot_efficiency_is_the_alternating_sum(batch: int, mean: float) -> None:
    """E[max] = sum over j of (-1)^(j + 1) C(b, j) / (1 - q^j)."""
    q = 1 - 1 / mean
    longest = sum(-((-1) ** j) * comb(batch, j) / (1 - q**j) for j in range(1, batch + 1))
    efficiency = theory.geometric_slot_efficiency(batch, mean)
    assert efficiency == pytest.approx(mean / longest, rel=1e-7)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=30), FEW)
def test_larger_static_batches_never_waste_less(lengths: list[int], batch: int) -> None:
    smaller, larger = (theory.sampled_slot_efficiency(lengths, b) for b in (batch, batch + 1))
    assert 1 / (batch + 1) * (1 - 1e-12) <= larger <= smaller * (1 + 1e-12)


# --- pipeline, networks, disaggregation ------------------------------------------------------


@given(FEW, FEW)
def test_pipeline_pass_is_its_schedule(stages: int, micro_batches: int) -> None:
    done = np.zeros((stages + 1, micro_batches + 1))
    for stage, micro in product(range(1, stages + 1), range(1, micro_batches + 1)):
        done[stage, micro] = max(done[stage - 1, micro], done[stage, micro - 1]) + 0.5
    makespan = theory.pipeline_makespan_s(stages, micro_batches, 0.5)
    assert makespan == pytest.approx(done[-1, -1])
    idle = 1 - micro_batches * 0.5 / makespan
    assert theory.pipeline_bubble(stages, micro_batches) == pytest.approx(idle)


@given(FEW, FEW)
def test_pipelined_decoding_is_its_schedule(stages: int, micro_batches: int) -> None:
    """Micro-batches take turns; a token starts when the one before it has left the last stage."""
    tokens, free = 30, np.zeros(stages)
    ends = np.zeros((tokens, micro_batches))
    for token, micro in product(range(tokens), range(micro_batches)):
        now = ends[token - 1, micro] if token else 0.0
        for stage in range(stages):
            free[stage] = now = max(now, float(free[stage])) + 0.5
        ends[token, micro] = now
    interval = theory.pipeline_token_interval_s(stages, micro_batches, 0.5)
    assert np.diff(ends[10:], axis=0) == pytest.approx(interval)
    busy = theory.pipeline_utilisation(stages, micro_batches)
    assert busy == pytest.approx(micro_batches * 0.5 / interval)
    assert theory.pipeline_first_token_s(stages, 0.5) == pytest.approx(ends[0, 0])


def test_pipeline_numbers() -> None:
    assert theory.pipeline_bubble(4, 8) == pytest.approx(0.2727, abs=5e-5)
    assert theory.pipeline_first_token_s(4, 0.5, hop_s=0.1) == pytest.approx(2.3)


def test_tandem() -> None:
    assert theory.tandem_sojourn_s(0.5, [1.0, 1 / 0.8]) == pytest.approx(5.33333, abs=5e-6)


def test_tandem_sojourn_is_that_of_its_markov_process() -> None:
    rate, serve, levels = 0.3, (1.0, 0.8), 40

    def rates(state: State) -> Moves:
        a, b = state
        moves: Moves = [((a + 1, b), rate)]
        moves += [((a - 1, b + 1), serve[0])] if a else []
        return moves + ([((a, b - 1), serve[1])] if b else [])

    states: list[State] = list(product(range(levels), repeat=2))
    number = float(steady_state(states, rates) @ np.sum(states, axis=1))
    sojourn = theory.tandem_sojourn_s(rate, [1 / s for s in serve])
    assert number / rate == pytest.approx(sojourn, rel=1e-6)


@pytest.mark.parametrize(
    ("clients", "throughput"), [(1, 0.588235), (2, 1.069182), (8, 1.985204), (200, 2.0)]
)
def test_closed_loop(clients: int, throughput: float) -> None:
    loop = theory.closed_loop(clients, 1.0, [0.2, 0.5])
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

    loop = theory.closed_loop(clients, think, services)
    assert loop.throughput_per_s == pytest.approx(constant(clients - 1) / constant(clients))
    bound = theory.closed_loop_throughput_bound_per_s(clients, think, services)
    assert loop.throughput_per_s <= bound * (1 + 1e-12)
    assert loop.throughput_per_s * (think + loop.sojourn_s) == pytest.approx(clients)
    inside = clients - loop.throughput_per_s * think
    assert sum(loop.mean_in_station) == pytest.approx(inside, abs=1e-9)


@pytest.mark.parametrize(
    ("ttft", "expected"),
    [
        (theory.prefill_ttft_s(5, 0.1), 0.15),
        (theory.pipelined_prefill_ttft_s(5, 0.1), 0.108333),
        (theory.tensor_parallel_prefill_ttft_s(5, 0.1, 1.6), 0.0767045),
    ],
    ids=["one device", "two stages", "two-way tensor parallel"],
)
def test_distserve_first_tokens(ttft: float, expected: float) -> None:
    assert ttft == pytest.approx(expected, rel=5e-6)


@given(st.floats(0.01, 9), st.floats(1, 2))
def test_distserve_forms_are_those_of_the_paper(rate: float, speedup: float) -> None:
    d, k = 0.1, speedup
    two_stages = d + rate * d**2 / (4 * (2 - rate * d))
    two_way = d / k + rate * d**2 / (2 * k * (k - rate * d))
    assert theory.pipelined_prefill_ttft_s(rate, d) == pytest.approx(two_stages)
    assert theory.tensor_parallel_prefill_ttft_s(rate, d, k) == pytest.approx(two_way)


def test_pipelined_prefill_is_that_of_simulated_stages() -> None:
    """Three stages by Lindley's recursion; 20 runs within Student's 99.9 % interval."""
    rate, prefill, means = 5.0, 0.3, []
    for seed in range(20):
        arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, 5000))
        done = arrivals
        for _ in range(3):
            queue = np.arange(len(done)) * prefill / 3
            done = np.maximum.accumulate(done - queue) + queue + prefill / 3
        means.append(float((done - arrivals).mean()) - prefill)
    half = 3.883 * np.std(means, ddof=1) / sqrt(20)
    wait = theory.pipelined_prefill_ttft_s(rate, prefill, 3) - prefill
    assert half < 0.1 * wait
    assert abs(np.mean(means) - wait) < half


def test_disaggregation_numbers() -> None:
    transfer = theory.kv_transfer_s(512, 2_359_296, 2**30)
    assert transfer == pytest.approx(1.125, rel=1e-12)
    assert 10 * transfer == pytest.approx(11.25, rel=1e-12)
    assert theory.kv_transfer_s(512, 2_359_296, 2**30, latency_s=0.5) == pytest.approx(1.625)
    goodput = theory.goodput_per_device_per_s(2, 5.6, 1, 10.0)
    assert goodput == pytest.approx(3.33, abs=5e-3)
    assert theory.goodput_per_device_per_s(1, 5.6, 1, 10.0) == pytest.approx(2.8)


# --- Little's law ----------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(1e-3, 1e3)), min_size=1, max_size=40))
def test_littles_law_holds_for_any_spans(spans: list[tuple[float, float]]) -> None:
    enter = np.array([start for start, _ in spans])
    leave = enter + [stay for _, stay in spans]
    assert theory.littles_law_gap(enter, leave) < 1e-9


def test_number_integral_counts_those_present() -> None:
    """One until 1 s, two until 2 s, one until 4 s, nobody until 5 s, one until 6 s."""
    assert theory.number_integral_s([0, 1, 5], [2, 4, 6]) == pytest.approx(1 + 2 + 2 + 0 + 1)


# --- KV memory -------------------------------------------------------------------------------

PROMPTS, OUTPUTS = [100, 30, 7, 400], [50, 200, 9, 100]


@pytest.mark.parametrize("reservation", ["exact", "max", "pow2"])
def test_region_use_is_the_time_average_of_what_contiguous_memory_holds(
    reservation: Reservation,
) -> None:
    """Each request holds its own region for its output's steps, half a token into each step."""
    memory = ContiguousKV(PolicyConfig(kv_tokens=4096, max_model_len=512, reservation=reservation))
    held = np.zeros(4)
    for place, (prompt, output) in enumerate(zip(PROMPTS, OUTPUTS, strict=True)):
        seq = Sequence(str(place), 0.0, prompt_tokens=prompt, max_tokens=output)
        assert memory.reserve(seq, prompt)
        for step in np.arange(output) + 0.5:
            held += [1, prompt + step, output - step, seq.region_tokens]
    use = theory.sampled_region_use(PROMPTS, OUTPUTS, reservation, 512)
    expected = held[1:] / held[0]
    found = [use.live_tokens, use.reserved_tokens, use.allocated_tokens]
    assert found == pytest.approx(expected.tolist(), rel=1e-12)
    assert sum(use.shares.values()) == pytest.approx(1)
    assert use.shares["live"] == pytest.approx(expected[0] / expected[2])


@pytest.mark.parametrize("region_tokens", [None, 512])
def test_region_use_from_moments_is_that_of_an_independent_sample(
    region_tokens: int | None,
) -> None:
    pairs = np.array(list(product(PROMPTS, [20, 60, 100])))
    cv = float(np.std([20, 60, 100])) / 60
    moments = theory.region_use(float(np.mean(PROMPTS)), 60.0, cv, region_tokens)
    reservation: Reservation = "max" if region_tokens else "exact"
    sample = theory.sampled_region_use(pairs[:, 0], pairs[:, 1], reservation, 512)
    assert moments.live_tokens == pytest.approx(sample.live_tokens)
    assert moments.reserved_tokens == pytest.approx(sample.reserved_tokens)
    if region_tokens:
        assert moments.internal_waste_tokens == pytest.approx(sample.internal_waste_tokens)
    else:
        assert moments.internal_waste_tokens == pytest.approx(0, abs=1e-9)


def test_paged_waste_of_16_token_blocks() -> None:
    assert theory.mean_paged_waste_tokens(16) == 7.5


@given(st.lists(st.tuples(FEW, st.integers(1, 70)), min_size=1, max_size=5), FEW)
def test_sampled_paged_waste_counts_every_step(pairs: list[tuple[int, int]], block: int) -> None:
    waste = [-length % block for p, o in pairs for length in range(p + 1, p + o + 1)]
    prompts, outputs = zip(*pairs, strict=True)
    sampled = theory.sampled_paged_waste_tokens(prompts, outputs, block)
    assert sampled == pytest.approx(np.mean(waste))


def test_copy_on_write_numbers() -> None:
    assert theory.copy_on_write(100, 50, 4, 16) == theory.ForkedBlocks(22, 40, 3)


def forked_block_table(prompt: int, output: int, samples: int, block: int) -> tuple[int, int]:
    """Blocks and copies of ``samples`` block tables that write their tokens one after another."""
    owners = dict.fromkeys(range(-(-prompt // block)), samples)
    tables, copies = [list(owners) for _ in range(samples)], 0
    for position, table in product(range(prompt, prompt + output), tables):
        if position % block == 0:
            table.append(len(owners))
            owners[table[-1]] = 1
        elif owners[table[-1]] > 1:
            owners[table[-1]] -= 1
            table[-1] = len(owners)
            owners[table[-1]] = 1
            copies += 1
    return len(owners), copies


@given(st.integers(1, 60), st.integers(1, 60), FEW, FEW)
def test_copy_on_write_is_what_block_tables_do(
    prompt: int, output: int, samples: int, block: int
) -> None:
    forked = theory.copy_on_write(prompt, output, samples, block)
    assert (forked.blocks, forked.copies) == forked_block_table(prompt, output, samples, block)
    assert forked.unshared_blocks == samples * -(-(prompt + output) // block)


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "complaint"),
    [
        (lambda: theory.md1_wait_s(1.0, 1.0), "utilisation of 1 has no steady state"),
        (lambda: theory.md1_wait_s(-1.0, 1.0), "rate_per_s must be 0 or a positive"),
        (lambda: theory.mg1_wait_s(0.5, 1.0, nan), "service_cv must be 0 or a positive"),
        (lambda: theory.mm1_sojourn_s(0.5, inf), "service_s must be a positive number, not inf"),
        (lambda: theory.mm1_sojourn_quantile_s(1.0, 0.5, 1.0), "at least 0 and below 1"),
        (lambda: theory.erlang_c(4, 4.0), "utilisation of 1 has no steady state"),
        (lambda: theory.erlang_b(0, 4.0), "servers must be a whole number of at least 1"),
        (lambda: theory.geometric_slot_efficiency(4, inf), "mean_tokens must be at least 1"),
        (lambda: theory.kaufman_roberts(8, [1], [1.0, 2.0]), "1 sizes and 2 loads do not pair"),
        (lambda: theory.batch_service(10, 0.1, 0.0), "no steady state"),
        (lambda: theory.batch_service(1 - 1e-9, 1.0, 0.0), "too close to 1"),
        (lambda: theory.batch_service(10, 0.0, 0.0), "service_of_one_s must be a positive"),
        (lambda: theory.bounded_batch_service(10, 0.02, 0.1, 1), "no steady state"),
        (lambda: theory.bounded_batch_service(9, 0.1, 0.1, 10**5), "or the batch too large"),
        (lambda: theory.priority_waits_s([PriorityClass(1, 0.6), PriorityClass(1, 0.6)]), "1.2"),
        (lambda: theory.priority_waits_s([]), "at least one class"),
        (lambda: theory.sjf_waits_s(0.1, [1, 2], [0.5, 0.4]), "adding up to 1"),
        (lambda: theory.geometric_slot_efficiency(4, 0.5), "mean_tokens must be at least 1"),
        (lambda: theory.sampled_slot_efficiency([], 4), "no lengths to draw from"),
        (lambda: theory.mean_longest([3, 0], 4), "shortest_length must be a positive"),
        (lambda: theory.closed_loop(3, 1.0, []), "at least one station"),
        (lambda: theory.number_integral_s([1.0], [0.5]), "one time of entering and a later one"),
        (lambda: theory.littles_law_gap([1.0], [1.0]), "nobody stayed"),
        (lambda: theory.region_use(100, 50, 1.0, 150), "cannot hold requests of 200"),
        (lambda: theory.sampled_region_use([9], [9], "pow2", 16), "18 tokens exceeds max_model"),
        (lambda: theory.sampled_region_use([9], [9, 9], "max", 64), "as many prompts as outputs"),
        (lambda: theory.copy_on_write(100, 0, 4, 16), "output_tokens must be a whole number"),
    ],
)
def test_what_has_no_answer_is_refused(ask: Callable[[], object], complaint: str) -> None:
    with pytest.raises(TheoryError, match=complaint) as refusal:
        ask()
    assert isinstance(refusal.value, ServetwinError)
