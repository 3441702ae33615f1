"""Simulated steps in real time: what is late is made up for, a stall is not."""

import pytest

from app.twin.real_time import MOST_HANDLING_S, MOST_LATE_S, SPIN_S, StepTimer
from tests.support.core_story import FakeClock

pytest.importorskip("uvicorn")


def test_a_late_step_is_made_up_for_and_a_stall_is_not(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()

    def sleep(seconds: float) -> None:
        clock.now_s += seconds + SPIN_S

    timer = StepTimer(clock, sleep)
    ends = []
    for disturbance_s in (0.0, 0.05, 0.0, 2 * MOST_LATE_S, 0.0, 2 * MOST_LATE_S, 0.0):
        clock.now_s += disturbance_s
        timer.begin(clock.now_s)
        timer.wait(1.0)
        ends.append(clock.now_s)
    early = MOST_HANDLING_S  # by what was taken for the core's work
    # 0.05 s late: the steps after it end when they would have; a stall moves all that follow
    expected = [1.0, 2.0 - early, 3.0, 4.2 - early, 5.2, 6.4 - early, 7.4]
    assert ends == pytest.approx(expected, abs=1e-9)
    (warning,) = caplog.messages
    assert warning.startswith("this machine is too slow or too busy")


def test_after_a_rest_a_step_begins_when_it_is_decided() -> None:
    clock = FakeClock()
    timer = StepTimer(
        clock, lambda seconds: setattr(clock, "now_s", clock.now_s + seconds + SPIN_S)
    )
    timer.begin(0.0)
    timer.wait(1.0)
    timer.rest()
    clock.now_s = 1.05
    timer.begin(1.05)
    timer.wait(1.0)
    assert clock.now_s == pytest.approx(2.05)
