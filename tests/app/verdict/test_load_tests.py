"""Load tests are repeated until they decide, and kept when they are cut short."""

from dataclasses import replace
from pathlib import Path

import pytest

from servetwin.loadtest.endpoint import Endpoint
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import EndedEarly
from servetwin.workloads.trace import Trace
from tests.support.fake_calibrator import (
    PLAN,
    PROFILE,
    FakeCalibrator,
    FakeMachine,
    verified,
)
from tests.support.report_runs import pretended


def test_more_load_tests_run_until_they_decide(
    calibrator: FakeCalibrator, machine: FakeMachine
) -> None:
    """Two tests that differ by 8 % cannot tell; with more of them the mean becomes known."""
    machine.slowness = lambda number: 0.96 if number % 2 else 1.04
    found = verified(calibrator)
    assert found.outcome == "holds"
    assert 4 <= len(found.levels[0].measured) <= 20


def test_a_spent_budget_ends_the_load_tests(
    calibrator: FakeCalibrator, machine: FakeMachine
) -> None:
    machine.slowness = lambda number: 0.7 if number % 2 else 1.3
    clock = iter(range(0, 10_000, 30))
    plan = replace(PLAN, minutes=3.0)
    found = verified(calibrator, plan, clock=lambda: float(next(clock)))
    assert found.outcome == "cannot tell"
    assert 2 < len(found.levels[0].measured) <= 6, "of at least 30 s each"
    again = verified(FakeCalibrator(), replace(PLAN, minutes=0.0))
    assert len(again.levels[0].measured) == 2, "never fewer than repeats"


@pytest.mark.parametrize(
    ("limited", "outcome"), [({1}, "holds"), ({1, 2}, "cannot tell"), ({2, 3}, "holds")]
)
def test_a_load_test_with_a_limited_client_is_repeated(
    calibrator: FakeCalibrator,
    machine: FakeMachine,
    monkeypatch: pytest.MonkeyPatch,
    limited: set[int],
    outcome: str,
) -> None:
    """Unless the client keeps up in none of the first two."""

    test = machine.test

    def run_load_test(endpoint: Endpoint, trace: Trace) -> Run:
        run = test(endpoint, trace)
        run.extra["delivered"]["limited_by"] = ["CPU 97%"] if machine.tests in limited else []
        return run

    monkeypatch.setattr(machine, "test", run_load_test)
    (level,) = verified(calibrator).levels
    tests, found = len(level.measured), level.comparison
    assert found.outcome == outcome
    if outcome == "holds":
        assert (found.repeats, found.set_aside) == (tests - len(limited), len(limited))
    else:
        assert (tests, found.set_aside) == (2, 0)


def test_a_limited_client_on_a_machine_that_drifts_is_not_tried_again(
    calibrator: FakeCalibrator, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = machine.test

    def run_load_test(endpoint: Endpoint, trace: Trace) -> Run:
        run = test(endpoint, trace)
        run.extra["delivered"]["limited_by"] = ["CPU 97%"] if machine.tests == 2 else []
        return run

    monkeypatch.setattr(machine, "test", run_load_test)
    machine.pulse_slowness = lambda number: 1.2 if number > 9 else 1.0
    (level,) = verified(calibrator).levels
    assert (len(level.measured), level.comparison.outcome) == (2, "cannot tell")
    assert len(level.comparison.doubts) == 2


def test_a_load_test_that_is_cut_short_is_kept(
    calibrator: FakeCalibrator,
    machine: FakeMachine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def run_load_test(endpoint: Endpoint, trace: Trace) -> Run:
        run = pretended(run_once(trace, Scenario(PROFILE.policy_config(), PROFILE)))
        run.requests.loc[0, "status"] = "failed"
        run.extra["delivered"] |= {"stopped": "Ctrl-C", "failures": {}}
        return run

    monkeypatch.setattr(machine, "test", run_load_test)
    with pytest.raises(EndedEarly, match=r"39 of 40 requests finished \(Ctrl-C\); records in"):
        verified(calibrator, out=tmp_path)
    (folder,) = tmp_path.iterdir()
    assert (folder / "at-70" / "interrupted" / "requests.parquet").exists()
