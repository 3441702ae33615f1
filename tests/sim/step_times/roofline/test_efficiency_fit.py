"""Efficiencies of a device, fitted to measured times."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from servetwin.sim.step_times.roofline.efficiency import Efficiency, fit_efficiency
from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables.interpolate import HeldOutError, halves
from servetwin.sim.step_times.tables.published_tables import OperatorTable
from tests.support.measured_tables import LAYERS, OPERATORS, mlp_frame, operators

PEAK_FLOPS_PER_S, BYTES_PER_S = 300e12, 1.5e12
HIDDEN, OUT = 4096, 28_672


def matrix_work(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """FLOPs and bytes of (rows x 4096) times (4096 x 28672) in two bytes per element."""
    return 2 * rows * HIDDEN * OUT, 2 * (HIDDEN * OUT + rows * (HIDDEN + OUT))


def roofline_s(flops: FloatArray, moved_bytes: FloatArray) -> FloatArray:
    """Half of the peak, 80 % of the bandwidth, 20 us, knee 3: written apart from the fit."""
    compute_s, memory_s = flops / (0.5 * PEAK_FLOPS_PER_S), moved_bytes / (0.8 * BYTES_PER_S)
    return 20e-6 + np.cbrt(compute_s**3 + memory_s**3)


def seconds(efficiency: Efficiency, flops: FloatArray, moved_bytes: FloatArray) -> FloatArray:
    at_peaks = zip(flops / PEAK_FLOPS_PER_S, moved_bytes / BYTES_PER_S, strict=True)
    return efficiency.overhead_s + np.array([efficiency.seconds(*each) for each in at_peaks])


def fitted(times_s: FloatArray, flops: FloatArray, moved_bytes: FloatArray) -> Efficiency:
    """Shares in (0, 1], an overhead of at most the shortest time and a knee in [1, 8]."""
    shortest_s = float(times_s.min())
    return fit_efficiency(
        lambda efficiency: seconds(efficiency, flops, moved_bytes),
        times_s,
        (Efficiency(1e-3, 1e-3, 0.0, 1.0), Efficiency(1.0, 1.0, shortest_s, 8.0)),
        [
            Efficiency(0.5, 0.7, overhead * shortest_s, knee)
            for overhead, knee in product((0.05, 0.6), (1.5, 4.0))
        ],
        smooth=0.01,
    )


def test_efficiencies_that_made_the_times_are_found() -> None:
    rows = np.array([2.0**k for k in range(14)])
    small_rows = np.array([1e-4, 1e-2, 1.0, 100.0])  # little work shows the overhead
    flops, moved = matrix_work(rows)
    flops, moved = np.append(flops, 1e6 * small_rows), np.append(moved, 1e5 * small_rows)
    fit = fitted(roofline_s(flops, moved), flops, moved)
    found = [fit.compute, fit.memory, fit.overhead_s, fit.knee]
    assert found == pytest.approx([0.5, 0.8, 20e-6, 3.0], rel=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_efficiencies_of_one_half_of_a_table_predict_the_other(tmp_path: Path, seed: int) -> None:
    """mlp.csv in the public schema: one product in tiles of 64 rows, with 5 % of noise."""
    rng = np.random.default_rng(seed)
    rows = np.unique(np.geomspace(1, 8192, 120).round())
    frame = mlp_frame(rows=rows.astype(int).tolist())
    for name in OPERATORS:
        frame[f"time_stats.{name}.median"] = 1e-4
    times_s = roofline_s(matrix_work(64 * np.ceil(rows / 64))[0], matrix_work(rows)[1])
    frame["time_stats.mlp_up_proj.median"] = (
        1e3 * times_s * np.exp(0.05 * rng.normal(size=len(rows)))
    )
    operators(tmp_path)
    frame.to_csv(tmp_path / "mlp.csv", index=False)
    linear = OperatorTable.read(
        tmp_path / "mlp.csv", tmp_path / "attention.csv", layers=LAYERS
    ).times.linear
    work = matrix_work(linear.x)
    known, others = halves(len(rows), seed)
    fit = fitted(linear.times_s[known], *(each[known] for each in work))
    predicted_s = seconds(fit, *(each[others] for each in work))
    assert HeldOutError.of(predicted_s, linear.times_s[others]).p90 < 0.15
    at_peak_s = np.maximum(work[0] / PEAK_FLOPS_PER_S, work[1] / BYTES_PER_S)
    assert (seconds(fit, *work) >= at_peak_s).all()


def test_no_efficiency_is_above_one_even_where_the_times_are_too_short() -> None:
    work = matrix_work(np.array([2.0**k for k in range(14)]))
    fit = fitted(0.3 * roofline_s(*work), *work)
    assert fit.compute <= 1
    assert fit.memory <= 1
