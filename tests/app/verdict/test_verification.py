"""The loop of a verification, with a calibrator and load tests that take no time."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from servetwin.sim.experiments.decision_check import DecisionCheck
from servetwin.sim.records.run import RunError
from servetwin.workloads.errors import EndedEarly, LoadTestError
from servetwin.workloads.transform import limit, scale_tokens
from tests.support.fake_calibrator import (
    PLAN,
    PROFILE,
    TRACE,
    FakeCalibrator,
    FakeMachine,
    verified,
)


def test_the_forecast_is_made_before_the_first_load_test(
    calibrator: FakeCalibrator, machine: FakeMachine, tmp_path: Path
) -> None:
    written: list[bool] = []

    def slowness(number: int) -> float:
        written.append((tmp_path / PROFILE.policy_config().name / "forecast.json").exists())
        return 1.0

    machine.slowness = slowness
    found = verified(calibrator, out=tmp_path)
    assert calibrator.events[0] == "identify, 3 rounds for 40 requests"
    tests = len(calibrator.events) - 1
    assert calibrator.events[1:] == [f"test at-70/{number}" for number in range(1, tests + 1)]
    assert written == [True] * tests
    assert machine.bursts == tests == PLAN.repeats
    rate_per_s = found.levels[0].trace.rate_per_s
    assert rate_per_s == pytest.approx(0.7 * found.capacity_per_s.value, rel=0.02)
    assert found.decisions == DecisionCheck(3, 3)


def test_every_load_has_its_tests_and_no_two_tests_have_the_same_prompts(
    calibrator: FakeCalibrator, machine: FakeMachine
) -> None:
    found = verified(calibrator, replace(PLAN, utilisations=(0.5, 0.7)))
    assert calibrator.events[1:] == [
        f"test at-{load}/{number}" for load in (50, 70) for number in (1, 2)
    ]
    assert [level.utilisation for level in found.levels] == [0.5, 0.7]
    for level in found.levels:
        assert len(level.measured) == level.comparison.repeats == 2
        judged = {row.metric: row.limit for row in level.comparison.metrics if row.limit}
        assert {name for name in judged if not name.startswith("step_s")} == {"tpot_s.mean"}
    assert found.outcome == "holds"


@pytest.mark.parametrize(
    ("slowness", "outcome"), [(1.0, "holds"), (1.12, "refuted"), (0.88, "refuted")]
)
def test_an_engine_that_is_not_the_profile_is_refuted(
    calibrator: FakeCalibrator, machine: FakeMachine, slowness: float, outcome: str
) -> None:
    machine.slowness = lambda number: slowness
    assert verified(calibrator).outcome == outcome


def test_a_load_is_a_share_of_what_the_machine_completes_now(
    calibrator: FakeCalibrator, machine: FakeMachine
) -> None:
    machine.burst_slowness, machine.slowness = 2.0, lambda number: 2.0
    found = verified(calibrator)
    half = found.levels[0].trace.rate_per_s / found.capacity_per_s.value
    assert half == pytest.approx(0.35, rel=0.03)
    assert found.outcome == "refuted"
    rest = {row.metric: row.outcome for row in found.levels[0].comparison.metrics}
    assert rest["tpot_s.mean"] == "holds", "given the step times"


def test_a_profile_is_judged_without_calibrating(
    calibrator: FakeCalibrator, machine: FakeMachine
) -> None:
    wrong = PROFILE.scaled(1.12)
    found = verified(calibrator, profile=wrong)
    assert calibrator.events == ["test at-70/1", "test at-70/2"]
    assert found.profile == wrong
    assert found.outcome == "refuted"


def test_an_interrupted_verification_goes_on(
    calibrator: FakeCalibrator, machine: FakeMachine, tmp_path: Path
) -> None:
    def slowness(number: int) -> float:
        if number == 2:
            raise KeyboardInterrupt
        return 1.0

    machine.slowness = slowness
    with pytest.raises(KeyboardInterrupt):
        verified(calibrator, out=tmp_path)
    (folder,) = tmp_path.iterdir()
    forecast = (folder / "forecast.json").read_bytes()
    assert (folder / "at-70" / "measured-1" / "summary.json").exists()
    machine.slowness = lambda number: 1.0
    calibrator.events.clear()
    found = verified(calibrator, out=tmp_path, resume=True)
    assert calibrator.events == ["test at-70/2"], "no calibration, and not the first test"
    assert found.outcome == "holds"
    assert len(found.levels[0].measured) == 2
    found.save(folder)
    assert (folder / "forecast.json").read_bytes() == forecast
    assert json.loads((folder / "verdict.json").read_text())["outcome"] == "holds"
    calibrator.events.clear()
    assert verified(calibrator, out=tmp_path, resume=True).outcome == "holds"
    assert calibrator.events == [], "all was done"


def test_a_new_forecast_leaves_no_load_test_of_an_older_one(
    calibrator: FakeCalibrator, machine: FakeMachine, tmp_path: Path
) -> None:
    verified(calibrator, replace(PLAN, repeats=4), out=tmp_path)
    found = verified(calibrator, replace(PLAN, repeats=2), out=tmp_path)
    tests = len(list(tmp_path.glob("*/at-70/measured-*")))
    assert tests == len(found.levels[0].measured) == 2


def test_only_what_was_begun_goes_on(
    calibrator: FakeCalibrator, machine: FakeMachine, tmp_path: Path
) -> None:
    verified(calibrator, out=tmp_path, resume=True)
    assert calibrator.events[0].startswith("identify"), "nothing to go on with: it begins"
    with pytest.raises(RunError, match="made for another trace; give the trace, its part and the"):
        verified(calibrator, out=tmp_path, resume=True, trace=limit(TRACE, 39))
    (folder,) = tmp_path.iterdir()
    folder.rename(tmp_path / "one")
    verified(calibrator, out=tmp_path)
    with pytest.raises(LoadTestError, match="has 2 forecasts; give a folder with one"):
        verified(calibrator, out=tmp_path, resume=True)
    calibrator.policy_name = PROFILE.policy_config().name
    assert verified(calibrator, out=tmp_path, resume=True).outcome == "holds"


def test_a_calibration_that_stops_ends_the_verification(
    calibrator: FakeCalibrator, machine: FakeMachine
) -> None:
    calibrator.stopped = "interrupted"
    with pytest.raises(EndedEarly, match="calibration ended early: interrupted"):
        verified(calibrator)
    assert len(calibrator.events) == 1


def test_requests_that_the_endpoint_cannot_take_are_counted_first(
    calibrator: FakeCalibrator, machine: FakeMachine
) -> None:
    long = scale_tokens(TRACE, prompt=100.0)
    with pytest.raises(LoadTestError, match=r"40 of 40 requests are longer than the 2048 tokens"):
        verified(calibrator, trace=long)
    assert calibrator.events == []
