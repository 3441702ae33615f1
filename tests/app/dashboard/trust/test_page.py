"""Trust: errors in detail, what a profile keeps, what a scenario rests on, and the page."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")

from app import figures
from app.dashboard.trust.error_by_load import error_by_band, in_flight
from app.dashboard.trust.profile_fit import (
    coefficient_table,
    decode_curve,
    fit_sentence,
    prompt_curve,
    residuals,
)
from app.dashboard.trust.trials import (
    EXAMPLE,
    error_rows,
    find_trials,
    profile_of,
    requests_of,
    verdict_table,
    when_and_where,
)
from loadtest.report.comparison import MetricComparison
from policies.batch import BatchShape
from sim.experiments.predict import Interval
from sim.records.metrics import figure
from sim.step_times.profile import StepTimeFit, load_profile
from tests.support.dashboard_app import Browser, page_test
from tests.support.figure_frames import load_test, requests_frame

NAME = "example-bundled-engine-2026-11-21"


@pytest.mark.parametrize(
    ("stamps_s", "others"),
    [
        ([(0, 10), (1, 2), (3, 4)], [0, 1, 1]),
        ([(0, 1), (1, 2)], [0, 0]),
        ([(0, 9), (1, 9), (2, None), (3, 4)], [0, 1, 2, 2]),
    ],
)
def test_in_flight_counts_who_was_sent_and_not_done(
    stamps_s: list[tuple[float, float | None]], others: list[int]
) -> None:
    frame = pd.DataFrame(stamps_s, columns=["scheduled_s", "last_token_s"], dtype=float)
    assert in_flight(frame).tolist() == others


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=30))
def test_in_flight_as_counted_one_by_one(pairs: list[tuple[int, int]]) -> None:
    comes_s, lasts_s = np.array(pairs, float).T
    goes_s = comes_s + lasts_s
    there = [((comes_s <= t) & (goes_s > t)).sum() - 1 for t in comes_s]
    frame = pd.DataFrame({"scheduled_s": comes_s, "last_token_s": goes_s})
    assert in_flight(frame).tolist() == there


@given(st.floats(0.5, 2.0), st.integers(1, 8), st.integers(0, 99))
def test_a_prediction_off_by_a_factor_is_off_by_it_in_every_band(
    factor: float, bands: int, seed: int
) -> None:
    measured = requests_frame(40, seed)
    predicted = measured.assign(ttft_s=factor * measured["ttft_s"])
    found = error_by_band(predicted, [measured, measured], "ttft_s", bands)
    assert found["requests"].sum() == 40
    assert len(found) <= bands
    for column in ("error", "low", "high"):
        assert found[column].to_numpy() == pytest.approx(factor - 1)
    assert found["noise"].to_numpy() == pytest.approx(0)
    assert (found["most"].to_numpy()[:-1] < found["least"].to_numpy()[1:]).all()


def test_the_interval_of_a_band_holds_its_error_and_noise_is_the_spread_of_repeats() -> None:
    measured = requests_frame(60)
    slower = measured.assign(ttft_s=1.1 * measured["ttft_s"])
    predicted = measured.assign(ttft_s=requests_frame(60, seed=9)["ttft_s"])
    found = error_by_band(predicted, [measured, slower], "ttft_s")
    assert ((found["low"] <= found["error"]) & (found["error"] <= found["high"])).all()
    assert found["noise"].to_numpy() == pytest.approx(0.1 / 1.05)
    assert error_by_band(predicted, [measured], "ttft_s")["noise"].isna().all()


def test_requests_that_did_not_finish_are_in_no_band() -> None:
    measured = load_test(20, status=["finished"] * 15 + ["failed"] * 5).requests
    found = error_by_band(requests_frame(20), [measured], "e2e_s", 3)
    assert found["requests"].sum() == 15
    nothing = error_by_band(requests_frame(20), [measured.iloc[:0]], "e2e_s")
    assert nothing.empty
    assert figures.alt_text(figures.error_per_band(nothing, "e2e_s")).endswith("not known.")


REPORTED = {
    "output_throughput_tokens_per_s": (-0.1, 0.0),
    "tpot_s.mean": (-5.3, 11.5),
    "ttft_s.mean": (-6.7, 10.5),
    "ttft_s.p90": (-6.2, 11.2),
}
"""Error and noise floor in per cent, as README and results page report them."""


def test_the_bundled_trial_is_the_one_that_was_reported(tmp_path: Path) -> None:
    trial = find_trials(tmp_path).found[NAME]
    rows = {row.metric: row for row in trial.comparison.metrics}
    summaries = [named.run.summary() for named in trial.measured]
    for name, (error, noise) in REPORTED.items():
        row = rows[name]
        assert row.error is not None
        assert row.noise is not None
        assert [100 * row.error, 100 * row.noise] == pytest.approx([error, noise], abs=0.05)
        values = [value for one in summaries if (value := figure(one, name)) is not None]
        assert row.measured == pytest.approx(np.mean(values))
    assert "2026-11-21" in when_and_where(trial)
    runs = {f"{NAME}/{folder}" for folder in ("predicted", "measured-1", "measured-2")}
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
    trials = find_trials(tmp_path)
    assert list(trials.found) == ["replayed", NAME]
    assert [named.name for named in trials.found["replayed"].measured] == ["tested"]
    assert len(trials.problems) == 1
    assert trials.problems[0].startswith("broken: not a readable run folder")
    assert list(find_trials(tmp_path / "nowhere").found) == [NAME]


def test_the_profile_of_a_verification_lies_beside_its_runs(tmp_path: Path) -> None:
    assert profile_of(tmp_path, NAME) == EXAMPLE / NAME / "profile.json"
    assert profile_of(tmp_path, "replayed") is None
    (tmp_path / "outside" / "at-50").mkdir(parents=True)
    load_profile("base-cpu").save(tmp_path / "outside" / "profile.json")
    assert profile_of(tmp_path, "outside/at-50") == tmp_path / "outside" / "profile.json"


METRIC = MetricComparison(
    "ttft_s.mean", Interval(0.11, 0.09, 0.13), 0.10, 0.1, noise=0.08, limit=0.1, holds=True
)


def test_errors_are_relative_to_what_was_measured() -> None:
    row = error_rows([METRIC]).iloc[0]
    assert row["metric"] == "TTFT mean"
    found = row[["error", "low", "high", "noise", "allowed"]].tolist()
    assert found == pytest.approx([10, -10, 30, 8, 16])  # twice the noise is more than the limit
    drawn = figures.errors_with_intervals(error_rows([METRIC]))
    point = next(trace for trace in drawn.data if trace.type == "scatter")
    assert [point.error_x.array[0], point.error_x.arrayminus[0]] == pytest.approx([20, 20])
    assert figures.alt_text(drawn) == "Error of the prediction: TTFT mean +10.0 %."


def test_a_metric_that_is_not_known_is_left_out() -> None:
    unknown = MetricComparison("tpot_s.mean", None, None, None, None, 0.05, False)
    assert error_rows([unknown]).empty
    assert verdict_table([METRIC, unknown])["verdict"].tolist() == ["✓ holds"]
    assert verdict_table([METRIC])["predicted"].tolist() == pytest.approx([110])


CPU = load_profile("base-cpu").layouts["paged"]


def test_curves_are_the_fit_and_end_where_measuring_ended() -> None:
    decodes, prompts = decode_curve(CPU), prompt_curve(CPU)
    for curve in (decodes, prompts):
        assert curve["x"].is_monotonic_increasing
        assert (curve["low_s"] < curve["seconds"]).all()
        assert (curve["seconds"] < curve["high_s"]).all()
    assert decodes.loc[decodes["measured"], "x"].max() == 16
    assert prompts.loc[prompts["measured"], "x"].max() <= 1000  # 501,000 pairs of a prompt
    n = int(prompts["x"].iloc[7])
    expected = CPU.model().seconds(BatchShape(0, 0, 0, ((0, n),)))[0]
    assert prompts["seconds"].iloc[7] == pytest.approx(expected)


def test_the_unmeasured_part_of_a_curve_is_drawn_apart() -> None:
    looks = figures.looks(["paged"])
    drawn = figures.step_time_curve({"paged": decode_curve(CPU)}, "decodes, count", looks)
    lines = {trace.name: trace for trace in drawn.data}
    assert max(lines["paged"].x) == min(lines["paged, not measured"].x) == 16
    assert lines["paged, not measured"].line.dash == "dot"
    assert drawn.layout.xaxis.title.text == "decodes, count"


def test_coefficients_have_standard_errors_of_their_covariance() -> None:
    table = coefficient_table(CPU).set_index("feature")
    expected_us = 1e6 * np.std(CPU.draws, axis=0, ddof=1)
    assert table["standard error, µs"].to_numpy() == pytest.approx(expected_us, rel=1e-3)
    assert table.loc["decode_sequences", "measured up to"] == 16
    assert fit_sentence("paged", CPU).startswith("paged: fitted to 893 steps; the median error")


def test_a_computed_profile_has_no_residuals_and_says_so() -> None:
    computed = load_profile("llama-3-8b-h100")
    fit: StepTimeFit = computed.layouts["paged"]
    assert residuals(computed) == {}
    assert "computed, not measured" in fit_sentence("paged", fit)
    assert list(coefficient_table(fit)) == ["feature", "µs per unit"]
    assert decode_curve(fit)["measured"].all()


def test_half_of_the_steps_are_below_the_median_residual() -> None:
    noise = {"paged": CPU.noise}
    line, *_ = figures.residual_cdf(noise, figures.looks(noise)).data
    assert np.interp(50, line.y, line.x) == pytest.approx(100 * (np.median(CPU.noise) - 1), abs=0.1)


def test_what_a_scenario_rests_on_is_said_in_words_too() -> None:
    drawn = figures.provenance_bar({"interpolated": 0.75, "extrapolated": 0.25})
    assert [bar.x[0] for bar in drawn.data] == [75, 25]
    assert [bar.text for bar in drawn.data] == ["interpolated 75.0%", "extrapolated 25.0%"]
    assert "interpolated 75.0%, extrapolated 25.0%." in figures.alt_text(drawn)
    assert figures.alt_text(figures.provenance_bar({})).endswith("no step was run.")


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr("app.dashboard.trust.page.runs_folder", lambda: tmp_path)
    at = page_test("trust")
    at.session_state["requests"] = 100
    return at


def test_the_page_shows_the_bundled_trial_on_a_first_visit(page: Any) -> None:
    page.run()
    assert not page.exception
    assert not page.error
    assert [title.value for title in page.title] == ["Trust"]
    assert page.selectbox(key="trust_trial").value == NAME
    assert "The prediction holds: 240 requests, 2 load tests." in page.success[-1].value
    assert any("formula" in info.value for info in page.info)


def test_the_page_says_what_was_extrapolated(page: Any) -> None:
    page.session_state["profile"] = "base-cpu"
    page.session_state["prompt_tokens"] = 2000
    page.run()
    assert not page.exception
    assert "lies outside what profile" in page.warning[0].value


def test_a_run_that_is_added_becomes_a_trial(page: Any, tmp_path: Path) -> None:
    page.run()
    measured, predicted = load_test(8), load_test(8)
    predicted.kind = "simulation"
    measured.save(tmp_path / "tested")
    predicted.save(tmp_path / "replayed")
    page.run()
    assert not page.exception
    assert page.selectbox(key="trust_trial").options == ["replayed", NAME]


@pytest.mark.parametrize("profile", ["base-cpu", "llama-3-8b-h100"])
def test_the_page_shows_the_profile_that_was_chosen(page: Any, profile: str) -> None:
    page.session_state["trust_profile"] = profile
    page.run()
    assert not page.exception
    assert any(f"profile {profile}" in x.value.replace("\\", "") for x in page.markdown)


def test_an_impossible_scenario_leaves_the_rest_of_the_page(page: Any) -> None:
    for name, value in {"server": "data sheet", "model": "opt-66b", "hardware": "l4"}.items():
        page.session_state[name] = value
    page.run()
    assert not page.exception
    assert len(page.error) == 1
    assert page.selectbox(key="trust_trial").value == NAME


@pytest.mark.browser
def test_another_metric_is_drawn_and_linked(chromium: Browser) -> None:
    chromium.open("trust?requests=100", "Trust")
    page = chromium.page
    page.get_by_role("radio", name="TPOT").click()
    page.locator(".js-plotly-plot").get_by_text("predicted TPOT, ms").wait_for(timeout=30_000)
    page.wait_for_url("**trust_metric=TPOT**")
    chromium.settle()
    chromium.assert_sound()
