"""Servers that turn requests away instead of queueing them.

Loads are in erlangs: arrival rate times mean holding time. All results hold for every law of
holding times with that mean.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sim.theory.checks import TheoryError, check_not_negative, check_whole

_RESCALE_ABOVE = 1e200


def erlang_b(servers: int, load_erlangs: float) -> float:
    """Share of the requests refused by ``servers`` slots without a queue.

    Erlang 1917, by the recursion B(c) = a B(c - 1) / (c + a B(c - 1)), whose terms are all
    positive (Kleinrock, Queueing Systems I, 1975, chapter 3).
    """
    check_whole(servers=servers)
    check_not_negative(load_erlangs=load_erlangs)
    blocking = 1.0
    for count in range(1, servers + 1):
        blocking = load_erlangs * blocking / (count + load_erlangs * blocking)
    return blocking


def kaufman_roberts(
    capacity_blocks: int, sizes_blocks: Sequence[int], loads_erlangs: Sequence[float]
) -> npt.NDArray[np.float64]:
    """Share of the requests refused, by class, where a request holds several blocks at once.

    A request of class k takes ``sizes_blocks[k]`` blocks wherever they are, or is refused; 1 for a
    class that never fits. Kaufman 1981; Roberts 1981.
    """
    if len(sizes_blocks) != len(loads_erlangs):
        raise TheoryError(f"{len(sizes_blocks)} sizes and {len(loads_erlangs)} loads do not pair")
    for size, load in zip(sizes_blocks, loads_erlangs, strict=True):
        check_whole(size_blocks=size)
        check_not_negative(load_erlangs=load)
    occupied = _occupancy(capacity_blocks, sizes_blocks, loads_erlangs)
    starts = [max(0, capacity_blocks - size + 1) for size in sizes_blocks]
    return np.array([occupied[start:].sum() for start in starts])


def _occupancy(
    capacity: int, sizes: Sequence[int], loads: Sequence[float]
) -> npt.NDArray[np.float64]:
    """Probability of each number of occupied blocks: n g(n) = sum_k a_k b_k g(n - b_k)."""
    check_whole(capacity_blocks=capacity)
    weight = np.zeros(capacity + 1)
    weight[0] = 1.0
    for n in range(1, capacity + 1):
        inflows = (a * b * weight[n - b] for b, a in zip(sizes, loads, strict=True) if b <= n)
        weight[n] = sum(inflows) / n
        if weight[n] > _RESCALE_ABOVE:
            weight[: n + 1] /= weight[n]
    probabilities: npt.NDArray[np.float64] = weight / weight.sum()
    return probabilities
