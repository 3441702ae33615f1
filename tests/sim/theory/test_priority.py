"""Priorities and shortest job first, against their Markov process and conserved work."""

from itertools import product
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.markov import TIMES, Moves, State, steady_state
from tests.support.theory.queues import PriorityClass, mg1_wait_s, priority_waits_s, sjf_waits_s

SJF_RATE = 0.7 / 1.8


def test_shortest_job_first_of_two_sizes() -> None:
    waits = sjf_waits_s(SJF_RATE, [1, 9], [0.9, 0.1])
    assert waits[0] == pytest.approx(2.692308, abs=5e-7)
    assert waits @ [0.9, 0.1] == pytest.approx(3.320513, abs=5e-7)
    fcfs = mg1_wait_s(SJF_RATE, 1.8, sqrt(9 - 1.8**2) / 1.8)
    assert fcfs == pytest.approx(5.83333, abs=5e-6)


def test_shortest_job_first_answers_in_the_order_asked_and_joins_equal_sizes() -> None:
    waits = sjf_waits_s(SJF_RATE, [9, 1, 1], [0.1, 0.5, 0.4])
    plain = sjf_waits_s(SJF_RATE, [1, 9], [0.9, 0.1])
    assert waits == pytest.approx(plain[[1, 0, 0]])


def test_priorities_wait_as_their_markov_process_says() -> None:
    """Two exponential classes; the state is (urgent, others, class served: 0, 1, or 2 for none)."""
    arrive, serve, levels = (0.3, 0.2), (1.5, 0.8), 45

    def next_served(a: int, b: int) -> int:
        return 0 if a else 1 if b else 2

    def rates(state: State) -> Moves:
        a, b, served = state
        moves: Moves = [
            ((a + 1, b, 0 if served == 2 else served), arrive[0]),
            ((a, b + 1, 1 if served == 2 else served), arrive[1]),
        ]
        if served < 2:
            a, b = a - (served == 0), b - (served == 1)
            moves.append(((a, b, next_served(a, b)), serve[served]))
        return moves

    states: list[State] = [(0, 0, 2)]
    pairs = product(range(levels), range(levels))
    states += [(a, b, served) for a, b in pairs for served in (0, 1) if (a, b)[served]]
    present = steady_state(states, rates) @ np.array(states)[:, :2]
    classes = [PriorityClass(a, 1 / s, 1.0) for a, s in zip(arrive, serve, strict=True)]
    waits = priority_waits_s(classes)
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
    assert loads @ priority_waits_s(classes) == pytest.approx(fcfs)
    assert loads[::-1] @ priority_waits_s(classes[::-1]) == pytest.approx(fcfs)
