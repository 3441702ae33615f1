"""What a scenario is: a setting of the simulator, its exact figures, and how to measure them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

PRECISION, HEAVY_TAIL = 0.05, 0.08
"""Half widths that leave power, as shares of the exact value; the second where tails are long."""

Figures = Mapping[str, float]
Measure = Callable[[np.random.Generator], Figures]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A server simple enough for theory to know its figures.

    ``measure`` simulates once and returns the figures of ``exact`` (and maybe more), warm-up left
    out. One replication is an identity: nothing in it is random, and both sides agree to rounding.
    ``precision`` is the half width of the interval, as a share of the exact value, that the
    replications must reach: a wider one could not tell right from wrong.
    """

    name: str
    setting: str
    exact: Figures
    measure: Measure
    replications: int = 16
    precision: float = PRECISION
