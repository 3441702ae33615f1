"""The loop of a verification, its forecast and its load tests, which take no time."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from servetwin.app.verdict.forecast import Forecast, make_forecast
from servetwin.loadtest.endpoint import Endpoint
from servetwin.sim.experiments.capacity import saturation_rate_per_s
from servetwin.sim.experiments.decision_check import DecisionCheck
from servetwin.sim.records.run import Run, write_files
from servetwin.workloads.errors import EndedEarly, LoadTestError
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import scale_tokens
from tests.support.fake_calibrator import (
    PLAN,
    PROFILE,
    TRACE,
    FakeCalibrator,
    FakeMachine,
    verified,
)
from tests.support.stamped_runs import stamped


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
    assert rate_per_s == pytest.approx(0.7 * found.forecast.capacity_per_s.value, rel=0.02)
    assert found.decisions == DecisionCheck(3, 3)


def test_every_load_has_its_tests_and_no_two_tests_have_the_same_prompts(
    calibrator: FakeCalibrator, machine: FakeMachine
) -> None:
    found = verified(calibrator, replace(PLAN, utilisations=(0.5, 0.7)))
    assert calibrator.events[1:] == [
        f"test at-{load}/{number}" for load in (50, 70) for number in (1, 2)
    ]
    assert [level.prediction.utilisation for level in found.levels] == [0.5, 0.7]
    for level in found.levels:
        assert len(level.measured) == level.claims.comparison.repeats == 2
        judged = {row.metric: row.limit for row in level.claims.comparison.metrics if row.limit}
        assert {name for name in judged if not name.startswith("step_s")} == {"tpot_s.mean"}
    assert found.outcome == "holds"


@pytest.mark.parametrize(
    ("slowness", "outcome"), [(1.0, "holds"), (1.12, "refuted"), (0.88, "refuted")]
)
def test_an_engine_that_is_not_the_profile_is_refuted(
    calibrator: FakeCalibrator, machine: FakeMachine, slowness: float, outcome: str
) -> None:
    machine.slowness = lambda number: slowness
    found = verified(calibrator)
    assert found.outcome == outcome
    assert found.as_dict()["holds"] is (outcome == "holds")


def test_a_load_is_a_share_of_what_the_machine_completes_now(
    calibrator: FakeCalibrator, machine: FakeMachine
) -> None:
    machine.burst_slowness, machine.slowness = 2.0, lambda number: 2.0
    found = verified(calibrator)
    half = found.levels[0].trace.rate_per_s / found.forecast.capacity_per_s.value
    assert half == pytest.approx(0.35, rel=0.03)
    assert found.outcome == "refuted"
    rest = {row.metric: row.outcome for row in found.levels[0].claims.comparison.metrics}
    assert rest["tpot_s.mean"] == "holds", "given the step times"


def test_a_profile_is_judged_without_calibrating(
    calibrator: FakeCalibrator, machine: FakeMachine
) -> None:
    wrong = PROFILE.scaled(1.12)
    found = verified(calibrator, profile=wrong)
    assert calibrator.events == ["test at-70/1", "test at-70/2"]
    assert found.forecast.profile == wrong
    assert found.outcome == "refuted"


def test_a_new_forecast_leaves_no_load_test_of_an_older_one(
    calibrator: FakeCalibrator, machine: FakeMachine, tmp_path: Path
) -> None:
    verified(calibrator, replace(PLAN, repeats=4), out=tmp_path)
    found = verified(calibrator, replace(PLAN, repeats=2), out=tmp_path)
    tests = len(list(tmp_path.glob("*/at-70/measured-*")))
    assert tests == len(found.levels[0].measured) == 2


def test_a_calibration_that_stops_ends_the_verification(
    calibrator: FakeCalibrator, machine: FakeMachine
) -> None:
    calibrator.stopped = "interrupted"
    with pytest.raises(EndedEarly, match=r"calibration ended early: interrupted$"):
        verified(calibrator)
    assert len(calibrator.events) == 1


def test_what_a_calibration_that_stops_has_learned_is_kept(
    calibrator: FakeCalibrator, machine: FakeMachine, tmp_path: Path
) -> None:
    calibrator.stopped = "interrupted"
    with pytest.raises(EndedEarly, match=f"interrupted; what was done is in {tmp_path}$"):
        verified(calibrator, out=tmp_path)
    (kept,) = tmp_path.glob("*/*")
    assert (kept.name, kept.read_text()) == ("profile.json", calibrator.profile().as_json())


@pytest.mark.parametrize("tests", [0, 1])
def test_an_interruption_keeps_the_load_tests_that_have_ended_and_says_where(
    calibrator: FakeCalibrator, machine: FakeMachine, tmp_path: Path, tests: int
) -> None:
    def interrupted(number: int) -> float:
        if number > tests:
            raise KeyboardInterrupt
        return 1.0

    machine.slowness = interrupted
    with pytest.raises(EndedEarly, match=f"^interrupted; what was done is in {tmp_path}$"):
        verified(calibrator, out=tmp_path)
    assert len(list(tmp_path.glob("*/at-70/measured-*/summary.json"))) == tests
    assert len(list(tmp_path.glob("*/forecast.json"))) == 1


def test_requests_that_the_endpoint_cannot_take_are_counted_first(
    calibrator: FakeCalibrator, machine: FakeMachine
) -> None:
    long = scale_tokens(TRACE, prompt=100.0)
    with pytest.raises(LoadTestError, match=r"40 of 40 requests are longer than the 2048 tokens"):
        verified(calibrator, trace=long)
    assert calibrator.events == []


@pytest.fixture(scope="module")
def forecast() -> Forecast:
    return make_forecast(TRACE, PROFILE, (0.5, 0.9), replications=5, seed=3)


@pytest.fixture
def folder(forecast: Forecast, tmp_path: Path) -> Path:
    assert not write_files(tmp_path, forecast.files(tmp_path))
    return tmp_path


def test_loads_are_shares_of_the_predicted_capacity(forecast: Forecast) -> None:
    capacity = forecast.capacity_per_s
    assert capacity.low <= capacity.value <= capacity.high
    fitted = saturation_rate_per_s(TRACE, PROFILE.policy_config(), PROFILE)
    assert capacity.value == pytest.approx(fitted, rel=0.05)
    for level, share in zip(forecast.levels, (0.5, 0.9), strict=True):
        assert level.trace.rate_per_s == pytest.approx(share * capacity.value)
        ttft = level.intervals["ttft_s.mean"]
        assert ttft.low <= ttft.value <= ttft.high
    waits = [level.intervals["ttft_s.mean"].value for level in forecast.levels]
    assert waits[0] < waits[1]


def test_a_forecast_names_its_files_by_what_they_hold(forecast: Forecast, folder: Path) -> None:
    record = json.loads((folder / "forecast.json").read_text())
    assert {"profile.json", "at-50/predicted/requests.parquet"} <= set(record["files"])
    for name, sha256 in record["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sha256
    digest = record.pop("digest")
    whole = json.dumps(record, sort_keys=True).encode()
    assert digest == hashlib.sha256(whole).hexdigest()


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
    tests, found = len(level.measured), level.claims.comparison
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
