"""A prediction judged by a recorded run: how often it is drawn, and the interval that has."""

import json
from pathlib import Path
from typing import Any

import pytest

from servetwin.app.verdict import recorded
from servetwin.app.verdict.recorded import require_enough, verify_recorded
from servetwin.loadtest.recorded.recorded_run import RecordedRun
from servetwin.sim.experiments.predict import Interval, run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import figure
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.transform import limit
from tests.support.fake_calibrator import PROFILE, TRACE
from tests.support.report_runs import pretended

CONFIG = PROFILE.policy_config()
SCENARIO = Scenario(CONFIG, PROFILE)
TPOT = "tpot_s.mean"


def recorded_run(slowness: float = 1.0) -> RecordedRun:
    run = pretended(run_once(TRACE, Scenario(CONFIG, PROFILE.scaled(slowness))))
    return RecordedRun(run, TRACE)


@pytest.mark.parametrize(
    ("slowness", "outcome"), [(1.0, "holds"), (1.3, "refuted"), (0.7, "refuted")]
)
def test_a_recorded_run_judges_the_step_times(slowness: float, outcome: str) -> None:
    found = verify_recorded(recorded_run(slowness), SCENARIO, replications=20, limits={TPOT: 0.05})
    assert found.outcome == found.comparison.outcome == outcome
    assert found.as_dict()["holds"] is (outcome == "holds")


def test_the_best_estimate_is_in_the_middle_of_its_draws(tmp_path: Path) -> None:
    """No draw is an estimate of the figure itself: its interval reaches from draw to draw."""
    found = verify_recorded(recorded_run(1.1), SCENARIO, replications=20)
    summary = found.predicted.summary()
    for metric, one in found.intervals.items():
        assert one.value == figure(summary, metric)
        assert one.low <= one.value <= one.high
        assert one.standard_error == 0.0
    assert found.intervals[TPOT].low < found.intervals[TPOT].high
    tpot = found.metrics["tpot_s"]["mean"]
    assert tpot["predicted"] == found.intervals[TPOT].value
    assert tpot["error"] == pytest.approx(tpot["predicted"] / (tpot["measured"] or 0.0) - 1)
    found.save(tmp_path)
    assert json.loads((tmp_path / "verdict.json").read_text())["outcome"] == found.outcome


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.9, 1.2, (0.9, 1.2)), (1.1, 1.2, (1.0, 1.2)), (0.8, 0.9, (0.8, 1.0))],
)
def test_an_interval_holds_its_best_estimate(
    low: float, high: float, expected: tuple[float, float]
) -> None:
    found = recorded._around(1.0, Interval(1.05, low, high, 0.01))
    assert (found.value, found.low, found.high, found.standard_error) == (1.0, *expected, 0.0)


@pytest.mark.parametrize(
    ("wall_s", "replications"),
    [(1e-6, 200), (0.01, 200), (0.04, 100), (0.19, 21), (1.0, 20), (100.0, 20)],
)
def test_there_are_as_many_replications_as_four_seconds_allow(
    monkeypatch: pytest.MonkeyPatch, wall_s: float, replications: int
) -> None:
    asked: list[int] = []

    def timed(*arguments: Any, **settings: Any) -> Any:
        run = run_once(*arguments, **settings)
        run.extra["simulation"]["wall_s"] = wall_s
        return run

    def drawn(*arguments: Any, **settings: Any) -> Any:
        asked.append(arguments[2])
        return run_once(*arguments[:2])

    monkeypatch.setattr(recorded, "run_once", timed)
    monkeypatch.setattr(recorded, "replication", drawn)
    verify_recorded(recorded_run(), SCENARIO)
    assert asked == [*range(replications)]
    asked.clear()
    verify_recorded(recorded_run(), SCENARIO, replications=7)
    assert asked == [*range(7)]


def test_a_server_without_chance_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = PROFILE.layouts["paged"].model_copy(update={"draws": [], "noise": [1.0], "drift": 0.0})
    certain = PROFILE.model_copy(update={"layouts": {"paged": fit}})
    scenario = Scenario(CONFIG, certain)
    assert scenario.is_repeatable()
    found = verify_recorded(recorded_run(), scenario)
    assert {(one.low, one.high) for one in found.intervals.values()} == {
        (one.value, one.value) for one in found.intervals.values()
    }


def test_thirty_requests_are_enough() -> None:
    require_enough(limit(TRACE, 30))
    with pytest.raises(LoadTestError, match="has 29 finished requests; at least 30 are needed"):
        require_enough(limit(TRACE, 29))
