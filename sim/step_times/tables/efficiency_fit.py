"""Achieved shares of a data sheet's peaks, fitted to measured times.

A time is t = overhead + ((FLOPs / (F e_c))^p + (bytes / (W e_m))^p)^(1/p): the roofline (Williams
2009) with a knee p as smooth as measured curves are (``sim.step_times.roofline.efficiency``). The
fit is one of least absolute relative deviations, so that points a tile or a stall has lengthened
pull no more than any other. It cannot separate what the points do not: one matrix at few rows reads
the same bytes whatever the rows, which an overhead explains as well, and an efficiency that no
point depends on stays where the search began.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from servetwin.sim.step_times.roofline.efficiency import Efficiency
from servetwin.sim.step_times.roofline.efficiency import fit_efficiency as roofline_fit
from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables.interpolate import HeldOutError, halves
from servetwin.workloads.errors import ProfileError

_FEWEST_POINTS = 10
_LEAST_EFFICIENCY = 1e-3
_KNEES = (1.0, 8.0)
_SMOOTH = 0.01
"""Relative deviations below this count as squares: the search needs a slope at zero."""


@dataclass(frozen=True, slots=True)
class EfficiencyFit:
    """Fitted to all points; ``held_out_error`` is that of a fit to a random half on the other."""

    efficiency: Efficiency
    held_out_error: HeldOutError

    def seconds(
        self,
        flops: FloatArray,
        moved_bytes: FloatArray,
        peak_flops_per_s: float,
        bytes_per_s: float,
    ) -> FloatArray:
        """Return the predicted times of other work on the device with these peaks."""
        work = _at_peaks(flops, moved_bytes, peak_flops_per_s, bytes_per_s)
        return _seconds(self.efficiency, *work)


def fit_efficiency(
    times_s: FloatArray,
    flops: FloatArray,
    moved_bytes: FloatArray,
    peak_flops_per_s: float,
    bytes_per_s: float,
    seed: int = 0,
) -> EfficiencyFit:
    """Fit efficiencies in (0, 1], an overhead and a knee in [1, 8] to measured times.

    ``flops`` and ``moved_bytes`` are what each point computes and moves, ``seed`` draws the halves.
    Raises ``ProfileError`` for fewer than 10 points, or times and work that cannot be.
    """
    times_s = np.asarray(times_s, dtype=np.float64)
    compute_s, memory_s = _at_peaks(flops, moved_bytes, peak_flops_per_s, bytes_per_s)
    _require_possible(times_s, compute_s, memory_s)
    seen, unseen = halves(len(times_s), seed)
    half = _fit(times_s[seen], compute_s[seen], memory_s[seen])
    predicted_s = _seconds(half, compute_s[unseen], memory_s[unseen])
    error = HeldOutError.of(predicted_s, times_s[unseen])
    return EfficiencyFit(_fit(times_s, compute_s, memory_s), error)


def _at_peaks(
    flops: FloatArray, moved_bytes: FloatArray, peak_flops_per_s: float, bytes_per_s: float
) -> tuple[FloatArray, FloatArray]:
    """Return the seconds of computing and of moving each point at the data sheet's peaks."""
    if not (peak_flops_per_s > 0 and bytes_per_s > 0):
        raise ProfileError(
            f"peaks of {peak_flops_per_s} FLOP/s and {bytes_per_s} bytes/s: both must be above 0"
        )
    flops, moved_bytes = (np.asarray(x, dtype=np.float64) for x in (flops, moved_bytes))
    return flops / peak_flops_per_s, moved_bytes / bytes_per_s


def _seconds(efficiency: Efficiency, compute_s: FloatArray, memory_s: FloatArray) -> FloatArray:
    a, b = compute_s / efficiency.compute, memory_s / efficiency.memory
    most, knee = np.maximum(a, b), efficiency.knee
    ratio = np.divide(np.minimum(a, b), most, out=np.zeros_like(most), where=most > 0)
    return efficiency.overhead_s + most * (1 + ratio**knee) ** (1 / knee)


def _fit(times_s: FloatArray, compute_s: FloatArray, memory_s: FloatArray) -> Efficiency:
    """Return the best of several searches."""
    shortest_s = float(times_s.min())
    least = Efficiency(_LEAST_EFFICIENCY, _LEAST_EFFICIENCY, 0.0, _KNEES[0])
    starts = [
        Efficiency(0.5, 0.7, overhead * shortest_s, knee)
        for overhead, knee in product((0.05, 0.6), (1.5, 4.0))
    ]
    return roofline_fit(
        lambda efficiency: _seconds(efficiency, compute_s, memory_s),
        times_s,
        (least, Efficiency(1.0, 1.0, shortest_s, _KNEES[1])),
        starts,
        smooth=_SMOOTH,
    )


def _require_possible(times_s: FloatArray, compute_s: FloatArray, memory_s: FloatArray) -> None:
    sizes = {len(times_s), len(compute_s), len(memory_s)}
    if len(sizes) > 1 or len(times_s) < _FEWEST_POINTS:
        raise ProfileError(
            f"{len(times_s)} times, {len(compute_s)} FLOP counts, {len(memory_s)} byte "
            f"counts: efficiencies need as many of each, at least {_FEWEST_POINTS}"
        )
    _require_all("times in s", times_s, times_s > 0, "above 0")
    for name, values in (("FLOPs", compute_s), ("bytes", memory_s)):
        _require_all(name, values, values >= 0, "at least 0")


def _require_all(name: str, values: FloatArray, holds: npt.NDArray[np.bool_], right: str) -> None:
    wrong = ~(holds & np.isfinite(values))
    if wrong.any():
        raise ProfileError(f"{name}: point {int(wrong.argmax())}; all must be finite and {right}")
