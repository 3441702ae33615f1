"""A calibrator that takes no time, and the machine that its load tests run on."""

import pytest

from tests.support.fake_calibrator import FakeCalibrator, FakeMachine, machine_of


@pytest.fixture
def calibrator() -> FakeCalibrator:
    return FakeCalibrator()


@pytest.fixture
def machine(calibrator: FakeCalibrator, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    return machine_of(calibrator, monkeypatch)
