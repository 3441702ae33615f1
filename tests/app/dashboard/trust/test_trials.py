"""Trials: the bundled one, those that are found, and their errors."""

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.trust.trials import (
    EXAMPLE,
    find_trials,
    profile_of,
    requests_of,
    when_and_where,
)
from servetwin.app.figures import agreement
from servetwin.app.reports.html.tables import comparison_table, error_rows
from servetwin.app.verdict.claims import Comparison, MetricComparison
from servetwin.app.verdict.measured_facts import as_sent
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.records.metrics import figure
from servetwin.sim.step_times.profile import load_profile
from tests.support.figure_frames import load_test

NAME = "example-demo-2026-11-27/at-70"


REPORTED = {
    "output_throughput_tokens_per_s": (0.0, 0.0),
    "tpot_s.mean": (-0.3, 0.1),
    "ttft_s.mean": (2.1, 1.7),
    "ttft_s.p90": (1.1, 1.4),
}
"""Error and range of the load tests in per cent, as the page shows them."""


def test_the_bundled_trial_is_the_one_that_was_reported(tmp_path: Path) -> None:
    trial = find_trials(tmp_path)[0][NAME]
    rows = {row.metric: row for row in trial.comparison.metrics}
    summaries = [as_sent(named.run).summary() for named in trial.measured]
    for name, (error, noise) in REPORTED.items():
        row = rows[name]
        assert row.error is not None
        assert row.noise is not None
        assert [100 * row.error, 100 * row.noise] == pytest.approx([error, noise], abs=0.05)
        values = [value for one in summaries if (value := figure(one, name)) is not None]
        assert row.measured == pytest.approx(np.mean(values), rel=0.003), "each at its own load"
    assert trial.comparison.outcome == "holds"
    assert rows["step_s.all"].outcome == "holds"
    assert when_and_where(trial) == (
        "2026-11-27 07:05:18 +0000 to 2026-11-27 07:05:47 +0000"
        " on Intel(R) Xeon(R) Processor, 2 cores"
    )
    runs = {f"{NAME}/{run}" for run in ("predicted", *(f"measured-{test}" for test in range(1, 5)))}
    assert set(requests_of(trial)["run"]) == runs


def test_the_bundled_trial_names_no_place_outside() -> None:
    for path in EXAMPLE.rglob("*"):
        if path.is_file():
            assert not re.search(rb"/(tmp|work|home|root)/", path.read_bytes()), path


def test_trials_are_found_and_damaged_folders_named(tmp_path: Path) -> None:
    measured = load_test(8)
    measured.save(tmp_path / "tested")
    predicted = load_test(8)
    predicted.kind = "simulation"
    predicted.save(tmp_path / "replayed")
    (tmp_path / "empty").mkdir()
    load_test(3).save(tmp_path / "broken")
    (tmp_path / "broken" / "summary.json").write_text("{")
    trials, problems = find_trials(tmp_path)
    assert list(trials) == ["replayed", NAME]
    assert [named.name for named in trials["replayed"].measured] == ["tested"]
    assert len(problems) == 1
    assert problems[0].startswith("broken: not a readable run folder")
    assert list(find_trials(tmp_path / "nowhere")[0]) == [NAME]


def test_a_recorded_run_is_a_trial_that_was_measured_elsewhere(tmp_path: Path) -> None:
    measured, predicted = load_test(8), load_test(8)
    predicted.kind = "simulation"
    measured.scenario |= {"recorded_by": "stamps of the engine", "trace": "measured.jsonl"}
    predicted.save(tmp_path / "recorded" / "predicted")
    measured.save(tmp_path / "recorded" / "measured")
    trial = find_trials(tmp_path)[0]["recorded"]
    assert when_and_where(trial) == "elsewhere: measured.jsonl (stamps of the engine)"


def test_the_profile_of_a_verification_lies_beside_its_runs(tmp_path: Path) -> None:
    assert profile_of(tmp_path, NAME) == (EXAMPLE / NAME).parent / "profile.json"
    assert profile_of(tmp_path, "replayed") is None
    (tmp_path / "outside" / "at-50").mkdir(parents=True)
    load_profile("base-cpu").save(tmp_path / "outside" / "profile.json")
    assert profile_of(tmp_path, "outside/at-50") == tmp_path / "outside" / "profile.json"


METRIC = MetricComparison(
    "ttft_s.mean", Interval(0.11, 0.09, 0.13), 0.10, 0.1, -0.1, 0.3, 0.08, 0.16, "cannot tell"
)


def test_errors_are_relative_to_what_was_measured() -> None:
    row = error_rows([METRIC]).iloc[0]
    assert row["metric"] == "TTFT mean"
    found = row[["error", "low", "high", "allowed"]].tolist()
    assert found == pytest.approx([10, -10, 30, 16])
    drawn = agreement.errors_with_intervals(error_rows([METRIC]))
    point = next(trace for trace in drawn.data if trace.type == "scatter")
    assert [point.error_x.array[0], point.error_x.arrayminus[0]] == pytest.approx([20, 20])
    assert drawn.alt == "Error of the prediction: TTFT mean +10.0 %."


def test_a_metric_that_is_not_known_is_left_out() -> None:
    unknown = MetricComparison("tpot_s.mean", None, 0.1, None, None, None, None, 0.05, "refuted")
    assert error_rows([unknown]).empty
    known, other = comparison_table(Comparison((METRIC, unknown), 1)).rows
    assert list(map(str, known)) == [
        "TTFT mean, ms", "110 (90 to 130)", "100", "+10.0% (-10.0% to +30.0%)", "16%",
        "cannot tell",
    ]  # fmt: skip
    assert list(map(str, other)) == ["TPOT mean, ms", "-", "100", "-", "5%", "refuted"]
