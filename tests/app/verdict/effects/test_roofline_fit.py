"""The parts of calibrated step times, found by a roofline."""

from dataclasses import replace

import pytest

from servetwin.app.verdict.effects.roofline_fit import fit_calibration, fitted_shapes
from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.roofline.efficiency import Efficiency
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from tests.support.known_effects import sides

BASE = sides().without.setup.deployment


def test_what_a_roofline_achieves_is_found_again() -> None:
    true = Efficiency(0.5, 0.95, 5e-4, 2.0, 0.0, 0.0, 0.0, attention=0.2)
    times = roofline_step_time(replace(BASE, efficiency=true))
    found = fit_calibration(BASE, times, fitted_shapes({}, 16))
    assert found.compute == pytest.approx(0.5, rel=0.02)
    assert found.memory == pytest.approx(0.95, rel=0.02)
    assert found.overhead_s == pytest.approx(5e-4, rel=0.1)
    assert found.attention == pytest.approx(0.2, rel=0.05)
    assert found.is_certain()


def test_batches_stay_within_what_was_measured() -> None:
    ranges = {"rows_from_0": 2.0, "rows_from_2": 62.0, "decode_context_tokens": 600.0}
    shapes = fitted_shapes(ranges, max_seqs=4)
    assert max(shape.rows for shape in shapes) <= 64
    assert max(shape.decode_context_tokens for shape in shapes) <= 600
    assert max(shape.decode_sequences for shape in shapes) == 4
    assert BatchShape(0, 0, 0, ((0, 64),)) in shapes
    assert any(shape.decode_sequences and shape.prefill_chunks for shape in shapes)
