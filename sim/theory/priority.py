"""One server that chooses the next request and never interrupts: priorities, shortest job first."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from servetwin.sim.theory.checks import TheoryError, check_not_negative, check_positive, stable

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """Poisson requests of one urgency; mean service time and its coefficient of variation."""

    rate_per_s: float
    service_s: float
    service_cv: float = 0.0

    def __post_init__(self) -> None:
        check_not_negative(rate_per_s=self.rate_per_s, service_cv=self.service_cv)
        check_positive(service_s=self.service_s)


def priority_waits_s(classes: Sequence[PriorityClass]) -> FloatArray:
    """Return the mean wait of each class, the most urgent first, in nonpreemptive M/G/1.

    Cobham 1954: R / ((1 - load of the more urgent) (1 - that load with the own one)), where
    R = sum rate E[S^2] / 2 is the mean rest of the service an arrival finds.
    """
    if not classes:
        raise TheoryError("priorities want at least one class")
    rates = np.array([c.rate_per_s for c in classes])
    means = np.array([c.service_s for c in classes])
    squares = means**2 * (1 + np.array([c.service_cv for c in classes]) ** 2)
    return _cobham_s(rates * means, float(rates @ squares) / 2)


def sjf_waits_s(
    rate_per_s: float, sizes_s: Sequence[float], probabilities: Sequence[float]
) -> FloatArray:
    """Return the mean wait by size under nonpreemptive shortest job first, ties by arrival.

    Cobham's classes, one per size (Phipps 1956). The mean over all requests is
    ``probabilities @ waits``.
    """
    check_not_negative(rate_per_s=rate_per_s)
    if len(sizes_s) != len(probabilities) or abs(sum(probabilities) - 1) > 1e-9:
        raise TheoryError("sizes want one probability each, adding up to 1")
    for size, probability in zip(sizes_s, probabilities, strict=True):
        check_positive(size_s=size)
        check_not_negative(probability=probability)
    sizes, places = np.unique(np.asarray(sizes_s, np.float64), return_inverse=True)
    rates = rate_per_s * np.bincount(places, weights=probabilities)
    waits: FloatArray = _cobham_s(rates * sizes, float(rates @ sizes**2) / 2)[places]
    return waits


def _cobham_s(loads: FloatArray, residual_s: float) -> FloatArray:
    up_to_own = np.cumsum(loads)
    stable(float(up_to_own[-1]))
    more_urgent = up_to_own - loads
    waits: FloatArray = residual_s / ((1 - more_urgent) * (1 - up_to_own))
    return waits
