"""Little's law on a finished run: both sides are computed, one from events, one from requests."""

import numpy as np
import numpy.typing as npt

from sim.theory.checks import TheoryError

FloatArray = npt.NDArray[np.float64]


def number_integral_s(enter_s: npt.ArrayLike, leave_s: npt.ArrayLike) -> float:
    """Integral over time of the number present, from the sorted events of entering and leaving."""
    enter, leave = _spans(enter_s, leave_s)
    moments = np.concatenate([enter, leave])
    changes = np.repeat([1, -1], len(enter))
    order = np.argsort(moments, kind="stable")
    present = np.cumsum(changes[order])[:-1]
    return float(present @ np.diff(moments[order]))


def littles_law_gap(enter_s: npt.ArrayLike, leave_s: npt.ArrayLike) -> float:
    """How far the integral of the number present is from the sum of the sojourns, relative.

    Zero but for rounding on any run that starts and ends empty (Little 1961).
    """
    enter, leave = _spans(enter_s, leave_s)
    sojourns_s = float((leave - enter).sum())
    if not sojourns_s > 0:
        raise TheoryError("nobody stayed: Little's law has nothing to compare")
    return abs(number_integral_s(enter, leave) / sojourns_s - 1)


def _spans(enter_s: npt.ArrayLike, leave_s: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    enter, leave = np.asarray(enter_s, np.float64), np.asarray(leave_s, np.float64)
    if enter.shape != leave.shape or not (leave >= enter).all():
        raise TheoryError("every request wants one time of entering and a later one of leaving")
    return enter, leave
