"""Load tests with a limited client are set aside, and kept when they are cut short."""

from dataclasses import replace
from pathlib import Path

import pytest

from servetwin.loadtest.endpoint import Endpoint
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import EndedEarly
from servetwin.workloads.trace import Trace
from tests.support.fake_calibrator import PLAN, PROFILE, FakeCalibrator, FakeMachine, verified
from tests.support.stamped_runs import stamped


@pytest.mark.parametrize(("limited", "outcome"), [({1}, "holds"), ({1, 2}, "cannot tell")])
def test_a_load_test_with_a_limited_client_is_set_aside(
    calibrator: FakeCalibrator,
    machine: FakeMachine,
    monkeypatch: pytest.MonkeyPatch,
    limited: set[int],
    outcome: str,
) -> None:
    """Unless the client kept up in one alone."""

    test = machine.test

    def run_load_test(endpoint: Endpoint, trace: Trace) -> Run:
        run = test(endpoint, trace)
        run.extra["delivered"]["limited_by"] = ["CPU 97%"] if machine.tests in limited else []
        return run

    monkeypatch.setattr(machine, "test", run_load_test)
    (level,) = verified(calibrator, replace(PLAN, repeats=3)).levels
    tests, found = len(level.measured), level.comparison
    assert found.outcome == outcome
    if outcome == "holds":
        assert (found.repeats, found.set_aside) == (tests - len(limited), len(limited))
    else:
        assert (tests, found.set_aside) == (3, 0)


def test_a_load_test_that_is_cut_short_is_kept(
    calibrator: FakeCalibrator,
    machine: FakeMachine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def run_load_test(endpoint: Endpoint, trace: Trace) -> Run:
        run = stamped(trace, PROFILE)
        run.requests.loc[0, "status"] = "failed"
        run.extra["delivered"] |= {"stopped": "Ctrl-C", "failures": {}}
        return run

    monkeypatch.setattr(machine, "test", run_load_test)
    with pytest.raises(EndedEarly, match=r"39 of 40 requests finished \(Ctrl-C\); records in"):
        verified(calibrator, out=tmp_path)
    (folder,) = tmp_path.iterdir()
    assert (folder / "at-70" / "interrupted" / "requests.parquet").exists()
