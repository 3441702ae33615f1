"""Efficiencies of data sheets from published points: fitted on half of the models, by a seed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np
from scipy.optimize import least_squares

from servetwin.sim.step_times.roofline.efficiency import Efficiency
from servetwin.sim.step_times.step_time import FloatArray
from servetwin.workloads.errors import ServetwinError
from tests.benchmarks.black_box import say
from tests.benchmarks.published_points import NotExpressed, Point

SEED = "1"
"""Of the split by kind of model."""
START = Efficiency(
    compute=0.6, memory=0.85, experts=0.3, attention=0.75, overhead_s=4e-3, sequence_s=2e-5,
    chunk_s=2e-3,
)  # fmt: skip
SHARES = ("compute", "memory", "experts", "attention")
FACTOR = np.log(4.0)
"""The logarithm of the most that a fit multiplies or divides a share by."""
SECONDS = {"overhead_s": (2e-3, 30e-3), "sequence_s": (1e-5, 1e-4), "chunk_s": (5e-3, 5e-2)}
"""The unit of seconds in a fit, and the most."""
PRIOR = 0.25
"""The weight of a share's factor of e, as of so many times the root of the number of errors."""
SOFT = 0.2
"""Logarithms of errors below this count as squares, larger ones less."""


def is_fitted(point: Point) -> bool:
    """Return whether the kind of model of a point is in the half that is fitted on."""
    return sha256(f"{SEED}{point.family}".encode()).digest()[0] % 2 == 0


def changed(start: Efficiency, names: Sequence[str], x: FloatArray) -> Efficiency:
    """Return an efficiency with its shares multiplied, and with other seconds."""
    values = {
        name: min(1.0, getattr(start, name) * float(np.exp(v - 1)))
        if name in SHARES
        else float(v) * SECONDS[name][0]
        for name, v in zip(names, x, strict=True)
    }
    return replace(start, **values)


def fitted(
    points: Sequence[Point],
    start: Callable[[Point], Efficiency],
    names: Sequence[str],
    evaluations: int = 5,
) -> FloatArray:
    """Return what ``changed`` takes, nearest to the points: of shares, 1 + the log of a factor.

    Slopes are taken over a tenth of a value, so none may be 0.
    """

    def errors(x: FloatArray) -> FloatArray:
        logs = []
        for point in points:
            try:
                seconds = point.simulated(point.scenario(changed(start(point), names, x)))
            except (NotExpressed, ServetwinError):
                continue
            logs += [float(np.log(seconds[metric] / value)) for metric, value in point.measured]
        say(f"  {np.round(x, 3)}: median {100 * np.median(np.abs(np.expm1(logs))):.1f} %")
        prior = [
            (v - 1) * PRIOR * len(logs) ** 0.5 for v, n in zip(x, names, strict=True) if n in SHARES
        ]
        return np.array([*logs, *prior])

    bounds = [
        (1 - FACTOR, 1 + FACTOR) if name in SHARES else (0, SECONDS[name][1] / SECONDS[name][0])
        for name in names
    ]
    first = [1.0 if name in SHARES else getattr(START, name) / SECONDS[name][0] for name in names]
    low, high = np.array(bounds).T
    found: FloatArray = least_squares(
        errors, first, bounds=(low, high), loss="soft_l1", f_scale=SOFT, diff_step=0.1,
        x_scale=np.where(np.array([name in SHARES for name in names]), 0.3, 1.0),
        max_nfev=evaluations,
    ).x  # fmt: skip
    return found
