"""Pulses, and what they say of the machine."""

import pytest

from servetwin.app.verdict.load_tests import Pulses, drift_doubt
from tests.support.fake_calibrator import FakeCalibrator, machine_of


@pytest.mark.parametrize(
    ("pulses_s", "said"),
    [
        ([], None),
        ([0.100, 0.104, 0.096], None),
        ([0.100, 0.300, 0.100], None),
        ([0.100, 0.106, 0.108], "+6 %"),
        ([0.093, 0.090, 0.300], "-7 %"),
    ],
)
def test_the_median_pulse_counts(pulses_s: list[float], said: str | None) -> None:
    doubt = drift_doubt(0.1, pulses_s)
    if said is None:
        assert doubt is None
        return
    assert doubt is not None
    assert f"a fixed burst was {said} off its time at calibration (limit 5 %)" in doubt


def test_no_baseline_shows_no_drift() -> None:
    assert drift_doubt(0.0, [0.1, 0.2]) is None


def test_a_pulse_is_the_time_of_a_token_and_the_baseline_a_median(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calibrator = FakeCalibrator()
    machine = machine_of(calibrator, monkeypatch)
    machine.pulse_slowness = lambda number: {2: 3.0, 7: 0.2}.get(number, 1.0)
    pulses = Pulses(calibrator)
    baseline_s = pulses.baseline_s()
    assert machine.pulses == 9
    machine.pulse_slowness = lambda number: 1.5
    assert pulses.take_s() == pytest.approx(1.5 * baseline_s, rel=1e-6)
