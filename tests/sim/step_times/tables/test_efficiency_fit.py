"""Efficiencies of a device, fitted to measured times."""

from pathlib import Path

import numpy as np
import pytest

from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables import (
    OperatorTable,
    fit_efficiency,
)
from servetwin.workloads.errors import ProfileError
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


def test_efficiencies_that_made_the_times_are_found() -> None:
    rows = np.array([2.0**k for k in range(14)])
    small_rows = np.array([1e-4, 1e-2, 1.0, 100.0])  # little work shows the overhead
    flops, moved = matrix_work(rows)
    flops, moved = np.append(flops, 1e6 * small_rows), np.append(moved, 1e5 * small_rows)
    fit = fit_efficiency(roofline_s(flops, moved), flops, moved, PEAK_FLOPS_PER_S, BYTES_PER_S)
    fitted = fit.efficiency
    found = [fitted.compute, fitted.memory, fitted.overhead_s, fitted.knee]
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
    fit = fit_efficiency(linear.times_s, *work, PEAK_FLOPS_PER_S, BYTES_PER_S, seed)
    assert fit.held_out_error.points == len(rows) // 2
    assert fit.held_out_error.p90 < 0.15
    at_peak_s = np.maximum(work[0] / PEAK_FLOPS_PER_S, work[1] / BYTES_PER_S)
    assert (fit.seconds(*work, PEAK_FLOPS_PER_S, BYTES_PER_S) >= at_peak_s).all()


def test_no_efficiency_is_above_one_even_where_the_times_are_too_short() -> None:
    work = matrix_work(np.array([2.0**k for k in range(14)]))
    fit = fit_efficiency(0.3 * roofline_s(*work), *work, PEAK_FLOPS_PER_S, BYTES_PER_S)
    assert fit.efficiency.compute <= 1
    assert fit.efficiency.memory <= 1


@pytest.mark.parametrize(
    ("times_s", "flops", "peak", "message"),
    [
        (np.ones(9), np.ones(9), 1e12, "at least 10"),
        (np.ones(12), np.ones(11), 1e12, "as many of each"),
        (np.zeros(12), np.ones(12), 1e12, "point 0; all must be finite and above 0"),
        (np.ones(12), np.full(12, np.nan), 1e12, "FLOPs: point 0"),
        (np.ones(12), np.ones(12), 0.0, "both must be above 0"),
    ],
)
def test_impossible_work_is_refused(
    times_s: FloatArray, flops: FloatArray, peak: float, message: str
) -> None:
    with pytest.raises(ProfileError, match=message):
        fit_efficiency(times_s, flops, np.ones(len(flops)), peak, 1e12)
