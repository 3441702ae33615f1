"""Steady states of Markov chains, and the ranges from which theory tests draw."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import spsolve

FloatArray = npt.NDArray[np.float64]
State = tuple[int, ...]
Moves = list[tuple[State, float]]
LOADS = st.floats(0.01, 0.95)
TIMES = st.floats(1e-3, 1e3)
FEW = st.integers(1, 12)


def stationary(moves: FloatArray) -> FloatArray:
    """Return the stationary distribution of a chain with these transition probabilities."""
    size = len(moves)
    equations = np.vstack([(np.eye(size) - moves).T, np.ones(size)])
    distribution: FloatArray = np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0))[0]
    return distribution


def steady_state(states: list[State], rates: Callable[[State], Moves]) -> FloatArray:
    """Return the stationary distribution; moves that leave the listed states are dropped."""
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
    distribution: FloatArray = spsolve(balance.tocsr(), np.eye(1, size)[0])
    return distribution
