"""The loop of a verification, with a calibrator and load tests that take no time."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from app.twin import verification
from app.twin.verification import (
    BLACK_BOX_ROUNDS,
    BLACK_BOX_UTILISATIONS,
    Plan,
    Verification,
    verify,
)
from loadtest.endpoint import Endpoint
from sim.experiments.decision_check import DecisionCheck
from sim.experiments.predict import predict_once
from sim.records.run import Run
from sim.step_times.profile import Profile, load_profile
from tests.support.report_runs import pretended
from workloads.errors import EndedEarly, LoadTestError
from workloads.sample import sample_trace
from workloads.trace import Trace
from workloads.transform import limit, scale_tokens

PROFILE = load_profile("base-cpu")
TRACE = limit(sample_trace(), 20)


class FakeCalibrator:
    """Knows its profile before the first round; ``events`` has rounds and load tests."""

    error_limits: Mapping[str, float] = {"tpot_s.mean": 0.05}

    def __init__(self) -> None:
        self.endpoint = Endpoint("http://host:1/v1", "model", prompt="ids", max_model_len=2048)
        self.events: list[str] = []
        self.stops_after = 99

    @property
    def stopped(self) -> str | None:
        return "interrupted" if len(self.events) >= self.stops_after else None

    def identify(self, rounds: int) -> None:
        self.events.append(f"identify, {rounds}")

    def run_round(self, label: str) -> None:
        self.events.append("round")

    def profile(self, name: str = "calibrated") -> Profile:
        return PROFILE.model_copy(update={"name": name})

    def as_counted(self, trace: Trace) -> Trace:
        return trace.replaced(list(trace), "as counted")

    def check_decisions(self) -> DecisionCheck:
        return DecisionCheck(3, 3)


@pytest.fixture
def calibrator(monkeypatch: pytest.MonkeyPatch) -> FakeCalibrator:
    """Its load tests find what a simulation finds."""
    found = FakeCalibrator()

    def run_load_test(endpoint: Endpoint, trace: Trace) -> Run:
        assert trace.notes[-1] == "as counted"
        found.events.append(f"test {endpoint.salt}")
        return pretended(predict_once(trace, PROFILE.policy_config(), PROFILE))

    monkeypatch.setattr(verification, "run_load_test", run_load_test)
    return found


def verified(calibrator: FakeCalibrator, plan: Plan) -> Verification:
    return verify(calibrator, TRACE, plan, lambda _: None)


def test_rounds_and_load_tests_take_turns(calibrator: FakeCalibrator) -> None:
    found = verified(calibrator, Plan(replications=2))
    assert calibrator.events == ["identify, 1", "test 1", "round", "test 2", "round"]
    assert found.levels[0].trace.rate_per_s == pytest.approx(0.7 * found.capacity_per_s)
    assert found.decisions == DecisionCheck(3, 3)


def test_every_load_has_its_tests_and_no_two_tests_have_the_same_prompts(
    calibrator: FakeCalibrator,
) -> None:
    found = verified(
        calibrator, Plan(BLACK_BOX_UTILISATIONS, replications=2, rounds=BLACK_BOX_ROUNDS)
    )
    tests = ["test 1", "test 2", "round", "test 3", "test 4", "round"]
    assert calibrator.events == ["identify, 2", *tests]
    assert [level.utilisation for level in found.levels] == [0.5, 0.7]
    for level in found.levels:
        assert len(level.measured) == level.comparison.repeats == 2
        judged = {row.metric: row.limit for row in level.comparison.metrics if row.limit}
        assert judged == {"tpot_s.mean": 0.05}
    assert found.holds == all(level.comparison.holds for level in found.levels)


@pytest.mark.parametrize("stops_after", [1, 3])
def test_a_calibration_that_stops_ends_the_verification(
    calibrator: FakeCalibrator, stops_after: int
) -> None:
    calibrator.stops_after = stops_after
    with pytest.raises(EndedEarly, match="calibration ended early: interrupted"):
        verified(calibrator, Plan())
    assert len(calibrator.events) == stops_after


def test_requests_that_the_endpoint_cannot_take_are_counted_first(
    calibrator: FakeCalibrator,
) -> None:
    long = scale_tokens(TRACE, prompt=100.0)
    with pytest.raises(LoadTestError, match=r"20 of 20 requests are longer than the 2048 tokens"):
        verify(calibrator, long, Plan(), lambda _: None)
    assert calibrator.events == []


def test_a_load_test_that_is_cut_short_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run_load_test(endpoint: Endpoint, trace: Trace) -> Run:
        run = pretended(predict_once(trace, PROFILE.policy_config(), PROFILE))
        run.requests.loc[0, "status"] = "failed"
        run.extra["delivered"] |= {"stopped": "Ctrl-C", "failures": {}}
        return run

    monkeypatch.setattr(verification, "run_load_test", run_load_test)
    with pytest.raises(EndedEarly, match=r"19 of 20 requests finished \(Ctrl-C\); records in"):
        verify(FakeCalibrator(), TRACE, Plan(), lambda _: None, tmp_path / "kept")
    assert (tmp_path / "kept" / "requests.parquet").exists()
