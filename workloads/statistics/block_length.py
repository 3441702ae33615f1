"""How many neighbours a block of the block bootstrap has, from how far neighbours depend.

Short blocks lose the dependence, long ones leave few blocks to draw from. The length with the least
error of a variance follows from the autocovariances: Politis and White, "Automatic block-length
selection for the dependent bootstrap" (2004), with the correction of Patton, Politis and White
(2009), for circular blocks. It is 1 where neighbours do not depend, as in a Poisson process.
"""

from collections.abc import Iterator
from math import ceil, log10, sqrt

import numpy as np
import numpy.typing as npt

_SIGNIFICANT = 2.0
"""Times the error of a correlation that is none: their c."""
_LEAST_RUN = 5
"""So many correlations in a row must be none, at least."""


def block_length(series: npt.ArrayLike) -> int:
    """Return the length of blocks for a series, at least 1."""
    values = np.asarray(series, dtype=float)
    count = len(values)
    off = values - values.mean() if count else values
    if count < 2 * _LEAST_RUN or not off.any():
        return 1
    reach = _reach(off)
    if reach == 0:
        return 1
    slope, level = 0.0, _covariance(off, 0)
    for lag in range(1, min(2 * reach, count - 1) + 1):
        weighted = 2 * min(1.0, 2 - lag / reach) * _covariance(off, lag)
        slope += weighted * lag
        level += weighted
    if level <= 0:
        return 1
    length = ceil(float((1.5 * (slope / level) ** 2 * count) ** (1 / 3)))
    longest = ceil(min(3 * sqrt(count), count / 3))
    return max(1, min(length, longest))


def _reach(off: npt.NDArray[np.float64]) -> int:
    """Return the last lag before a long run of correlations that are none."""
    count = len(off)
    run = max(_LEAST_RUN, ceil(sqrt(log10(count))))
    bound = _SIGNIFICANT * sqrt(log10(count) / count)
    last = 0
    for lag, correlation in _correlations(off, ceil(sqrt(count)) + run):
        if abs(correlation) > bound:
            last = lag
        elif lag - last >= run:
            break
    return last


def _correlations(off: npt.NDArray[np.float64], most: int) -> Iterator[tuple[int, float]]:
    variance = _covariance(off, 0)
    for lag in range(1, min(most, len(off) - 1) + 1):
        yield lag, _covariance(off, lag) / variance


def _covariance(off: npt.NDArray[np.float64], lag: int) -> float:
    return float(off[: len(off) - lag] @ off[lag:]) / len(off)
