"""Simulated steps in real time: what is late is made up for, a stall is not."""

import pytest

from servetwin.app.serving.simulated import (
    MOST_HANDLING_S,
    MOST_LATE_S,
    MOST_MADE_UP_S,
    SPIN_S,
    StepTimer,
)
from tests.support.core_story import FakeClock

pytest.importorskip("uvicorn")


def test_a_late_step_is_made_up_for_and_a_stall_is_not(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()

    def sleep(seconds: float) -> None:
        clock.now_s += seconds + SPIN_S

    timer = StepTimer(clock, sleep)
    ends = []
    stalls_s = (2 * MOST_LATE_S, 0.0, 2 * MOST_LATE_S, 0.0)
    for disturbance_s in (0.0, MOST_MADE_UP_S / 2, 0.0, 5 * MOST_MADE_UP_S, 0.0, *stalls_s):
        clock.now_s += disturbance_s
        timer.begin(clock.now_s)
        timer.wait(1.0)
        ends.append(clock.now_s)
    early = MOST_HANDLING_S  # by what was taken for the core's work
    # 5 ms late: the steps after it end when they would have; 50 ms move all that follow
    expected = [1.0, 2.0 - early, 3.0, 4.05 - early, 5.05, 6.25 - early, 7.25, 8.45 - early, 9.45]
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
