"""The timeline: what it draws of a run, whom it explains, and the page."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")

from app import figures
from app.dashboard.simulations import SimulatedScenario
from app.dashboard.timeline.tables import behind_table, parts_table, slowest_table
from app.dashboard.timeline.timeline_run import TimelineRun, from_folder, from_simulation, kept_runs
from app.dashboard.timeline.visible_requests import (
    MOST_LINES,
    busiest_window,
    in_window,
    slowest,
    timeline_data,
    window_around,
)
from app.figures.batches import MIXES
from app.scenario.scenario_file import ScenarioFile, Workload
from sim.experiments.predict import run_once
from tests.support.dashboard_app import Browser, page_test
from tests.support.figure_frames import load_test

expect = pytest.importorskip("playwright.sync_api").expect

BUSY = ScenarioFile(
    workload=Workload(requests=300, rate_per_s=60.0),
    policies={"max_seqs": 32, "kv_tokens": 60_000},
    cluster={"replicas": 2},
)


def outcome(file: ScenarioFile = BUSY) -> SimulatedScenario:
    trace = file.workload.trace(file.seed)
    scenario = file.build(trace)
    run = run_once(trace, scenario, seed=file.seed)
    return SimulatedScenario(file, "", trace, scenario, run, run.summary(file.slo.slo()))


@pytest.fixture(scope="module")
def watched() -> TimelineRun:
    return from_simulation(outcome())


def test_a_run_in_memory_and_its_folder_have_the_same_explanations(
    watched: TimelineRun, tmp_path: Path
) -> None:
    scenario = {**watched.run.scenario, "profile": "llama-3-8b-h100"}
    replace(watched.run, scenario=scenario).save(tmp_path / "kept")
    kept = from_folder(tmp_path / "kept")
    assert kept.explainer.slowest(20) == watched.explainer.slowest(20)
    assert kept.kv_tokens == watched.kv_tokens == 60_000


def test_a_window_has_who_was_there_by_arrival(watched: TimelineRun) -> None:
    start_s, end_s = busiest_window(watched)
    requests = watched.run.requests
    there = (requests["scheduled_s"] <= end_s) & (requests["last_token_s"] >= start_s)
    choice = in_window(watched, (start_s, end_s))
    assert set(choice.rows) <= set(np.flatnonzero(there))
    assert len(choice.rows) == min(there.sum(), MOST_LINES)
    assert requests["scheduled_s"].iloc[choice.rows].is_monotonic_increasing


def test_many_are_sampled_and_the_chosen_one_is_among_them(watched: TimelineRun) -> None:
    whole_s = watched.start_s, watched.end_s
    sampled = in_window(watched, whole_s)
    assert f"300 requests in this window; {MOST_LINES} of them drawn" in sampled.said
    left_out = next(row for row in range(300) if row not in sampled.rows)
    choice = in_window(watched, whole_s, left_out)
    assert set(choice.rows) == {*sampled.rows, left_out}
    assert in_window(watched, (1e6, 2e6), left_out).said == "0 requests in this window"


def test_the_busiest_window_is_about_the_peak(watched: TimelineRun) -> None:
    start_s, end_s = busiest_window(watched)
    requests = watched.run.requests
    counts = [
        ((requests["scheduled_s"] <= t) & (requests["last_token_s"] > t)).sum()
        for t in requests["scheduled_s"]
    ]
    assert start_s <= requests["scheduled_s"].iloc[int(np.argmax(counts))] <= end_s
    assert watched.start_s <= start_s < end_s <= watched.end_s


def test_the_slowest_come_first_and_all_their_time_is_shown(watched: TimelineRun) -> None:
    choice = slowest(watched, 7)
    requests = watched.run.requests.iloc[choice.rows]
    assert requests["e2e_s"].tolist() == sorted(watched.run.requests["e2e_s"], reverse=True)[:7]
    start_s, end_s = choice.window_s
    assert start_s < requests["scheduled_s"].min() <= requests["last_token_s"].max() < end_s


@pytest.mark.parametrize("row", [0, 150, 299])
def test_a_window_around_a_request_holds_all_of_it(watched: TimelineRun, row: int) -> None:
    start_s, end_s = window_around(watched, row)
    request = watched.run.requests.iloc[row]
    assert watched.start_s <= start_s <= request["scheduled_s"]
    assert request["last_token_s"] <= end_s <= watched.end_s


def test_the_figure_has_one_time_axis_and_the_spans_of_each_request(watched: TimelineRun) -> None:
    choice = slowest(watched, 9)
    shown = timeline_data(watched, choice)
    chosen = str(shown.requests["request_id"].iloc[3])
    figure = figures.timeline(shown, chosen)
    axes = list(figure.select_xaxes())
    assert len(axes) == 4
    assert {tuple(axis.range) for axis in axes} == {choice.window_s}
    assert all(axis.matches == "x4" for axis in axes[:3])
    assert axes[-1].title.text == "time, s"
    drawn = pd.concat(
        pd.DataFrame({"id": bar.customdata, "s": bar.x})
        for bar in figure.data
        if bar.type == "bar" and bar.customdata is not None
    )
    lengths_s = drawn.groupby("id")["s"].sum()
    e2e_s = shown.requests.set_index("request_id")["e2e_s"]
    assert lengths_s.sort_index().to_numpy() == pytest.approx(e2e_s.sort_index().to_numpy())
    assert f"<b>▶ {chosen}</b>" in figure.layout.yaxis.ticktext
    assert "9 requests" in figures.alt_text(figure)


def test_the_state_keeps_to_the_window(watched: TimelineRun) -> None:
    start_s, end_s = busiest_window(watched)
    state = watched.state(start_s, end_s)
    assert state["at_s"].between(start_s, end_s).all()
    assert state["running"].max() > 32  # of two replicas
    assert state["kv_usage"].between(0, 1).all()


def test_a_client_sees_its_own_stages_and_failures() -> None:
    status = ["finished"] * 8 + ["failed"] * 2
    run = load_test(10, status=status, error=[""] * 9 + ["<b>timeout</b>"])
    run.requests.loc[8:, ["first_token_s", "last_token_s"]] = np.nan
    seen = of_outcome_like(run)
    figure = figures.timeline(timeline_data(seen, in_window(seen, (0.0, 99.0))))
    names = {trace.name for trace in figure.data}
    assert names == {"client late", "until the first token", "streaming", "not finished"}
    failed = next(trace for trace in figure.data if trace.name == "not finished")
    assert failed.text[1] == "r9: failed (&lt;b>timeout&lt;/b>)"
    assert "2 of them not finished, seen by a client" in figures.alt_text(figure)


def of_outcome_like(run: Any) -> TimelineRun:
    from sim.explain.explain import Explainer

    return TimelineRun(run, Explainer(run), None)


def test_a_request_waited_behind_the_steps_of_its_queue(watched: TimelineRun) -> None:
    waits = watched.run.requests["queue_s"]
    name = str(watched.run.requests["request_id"].iloc[int(waits.argmax())])
    steps = watched.explainer.waited_behind(name)
    found = watched.explainer.explain(name)
    assert (steps["replica"] == found.replica).all()
    covered_s = (steps["end_s"] - steps["start_s"]).sum()
    assert covered_s == pytest.approx(waits.max(), rel=0.25)
    assert behind_table(steps)["lasted, ms"].sum() == pytest.approx(1e3 * covered_s)


def test_a_load_test_has_nothing_to_wait_behind() -> None:
    assert of_outcome_like(load_test(5)).explainer.waited_behind("r3").empty


def test_tables_and_the_bar_of_parts_sum_to_the_latency(watched: TimelineRun) -> None:
    found = watched.explainer.slowest(3)
    assert found[0].e2e_s
    table = parts_table(found[0])
    assert table["ms"].sum() == pytest.approx(1e3 * found[0].e2e_s)
    assert table["share, %"].sum() == pytest.approx(100)
    figure = figures.request_parts(found[0].request_id, found[0].parts_s)
    assert sum(bar.x[0] for bar in figure.data) == pytest.approx(found[0].e2e_s)
    assert figures.alt_text(figure).endswith(".")
    assert slowest_table(found)["E2E latency, ms"].is_monotonic_decreasing


STEPS = st.lists(
    st.tuples(st.floats(1e-3, 1), st.integers(1, 9), st.integers(0, 20), st.integers(0, 50)),
    min_size=1,
    max_size=60,
)


@given(STEPS, st.integers(1, 20))
def test_joined_batches_lose_nothing(rows: list[tuple[float, int, int, int]], most: int) -> None:
    lasted_s, counts, decodes, prompts = map(np.array, zip(*rows, strict=True))
    ends_s = lasted_s.cumsum()
    steps = pd.DataFrame(
        {
            "replica": np.arange(len(rows)) % 2, "start_s": ends_s - lasted_s, "end_s": ends_s,
            "steps": counts, "decode_sequences": decodes, "rows": decodes + prompts,
        }
    )  # fmt: skip
    bars = figures.batch_bars(steps, most)
    assert bars.groupby("replica").size().max() <= max(most, len(rows) if len(rows) <= most else 0)
    assert bars["busy_s"].sum() == pytest.approx(lasted_s.sum())
    assert bars["steps"].sum() == counts.sum()
    assert bars["rows"].sum() == (counts * (decodes + prompts)).sum()
    assert set(bars["mix"]) <= set(MIXES)


@pytest.mark.parametrize(
    ("decodes", "rows", "mix"),
    [
        (4, 4, "decodes only"),
        (4, 5, "mostly decodes"),
        (4, 8, "mostly decodes"),
        (4, 9, "mostly prompts"),
        (0, 9, "prompts only"),
        (0, 0, "decodes only"),
    ],
)
def test_the_mix_is_the_share_of_rows(decodes: int, rows: int, mix: str) -> None:
    step = {"replica": 0, "start_s": 0.0, "end_s": 1.0, "steps": 3}
    frame = pd.DataFrame([{**step, "decode_sequences": decodes, "rows": rows}])
    assert figures.batch_bars(frame)["mix"].tolist() == [mix]


def test_kept_runs_are_found_where_they_are(tmp_path: Path) -> None:
    for name in ("a", "v/policy/predicted", "v/policy/measured-1"):
        load_test(3).save(tmp_path / name)
    (tmp_path / "notes").mkdir()
    assert sorted(kept_runs(tmp_path)) == ["a", "v/policy/measured-1", "v/policy/predicted"]
    assert kept_runs(tmp_path / "nowhere") == []


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr("app.dashboard.timeline.page.runs_folder", lambda: tmp_path)
    at = page_test("timeline")
    at.session_state["requests"] = 100
    return at


def test_the_page_explains_the_request_of_the_box(page: Any) -> None:
    page.session_state["timeline_request"] = "generated:7"
    page.run()
    assert not page.exception
    assert not page.error
    assert [title.value for title in page.title] == ["Timeline"]
    assert r"Request generated\:7" in [header.value for header in page.subheader]
    table = next(t.value for t in page.dataframe if "part" in t.value)
    start_s, end_s = page.slider(key="timeline_window").value
    assert end_s - start_s > table["ms"].sum() / 1000


def test_another_scenario_is_another_timeline(page: Any) -> None:
    page.run()
    ends_s = [page.slider(key="timeline_window").max]
    page.slider(key="rate").set_value(20.0).run()
    ends_s.append(page.slider(key="timeline_window").max)
    assert not page.exception
    assert ends_s[1] < 0.75 * ends_s[0]


def test_the_page_says_which_request_was_meant(page: Any) -> None:
    page.session_state["timeline_request"] = "generatd:7"
    page.run()
    assert not page.exception
    assert r"did you mean 'generated\:7'" in page.error[0].value


def test_the_slowest_and_the_window_can_be_chosen(page: Any) -> None:
    page.session_state["timeline_window"] = (2.0, 4.0)
    page.run()
    assert page.slider(key="timeline_window").value == (2.0, 4.0)
    page.segmented_control(key="timeline_show").set_value("slowest").run()
    assert not page.exception
    assert any("The slowest 20 of 100" in caption.value for caption in page.caption)


def test_a_window_of_another_run_gives_way(page: Any) -> None:
    page.session_state["timeline_window"] = (5000.0, 6000.0)
    page.run()
    assert not page.exception
    assert page.slider(key="timeline_window").value[1] < 100


def test_a_kept_run_is_shown_and_a_damaged_one_named(page: Any, tmp_path: Path) -> None:
    load_test(12).save(tmp_path / "measured")
    load_test(3).save(tmp_path / "broken")
    (tmp_path / "broken" / "requests.parquet").write_text("nothing")
    page.session_state["timeline_run"] = "measured"
    page.run()
    assert not page.exception
    assert any("12 requests" in caption.value for caption in page.caption)
    page.selectbox(key="timeline_run").set_value("broken").run()
    assert not page.exception
    assert page.error[0].value.startswith("broken")
    assert str(tmp_path) not in page.error[0].value


def test_a_run_that_is_written_again_is_read_again(page: Any, tmp_path: Path) -> None:
    load_test(12).save(tmp_path / "measured")
    page.session_state["timeline_run"] = "measured"
    page.run()
    load_test(8).save(tmp_path / "measured")
    page.run()
    assert any("8 requests" in caption.value for caption in page.caption)


def test_a_run_in_which_nothing_finished_is_shown(page: Any, tmp_path: Path) -> None:
    run = load_test(4, status="refused", error="full")
    run.requests[["first_token_s", "last_token_s"]] = np.nan
    run.save(tmp_path / "refused")
    page.session_state["timeline_run"] = "refused"
    page.session_state["timeline_show"] = "slowest"
    page.session_state["timeline_request"] = "r1"
    page.run()
    assert not page.exception
    assert any("Refused\\: full" in text.value for text in page.markdown)


@pytest.mark.browser
def test_a_click_on_a_bar_explains_its_request(chromium: Browser) -> None:
    chromium.open("timeline?requests=200&timeline_show=slowest", "Timeline")
    page = chromium.page
    bar = page.locator(".subplot.xy .trace.bars").last.locator(".point path").first
    bar.wait_for(timeout=30_000)
    box = bar.bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.get_by_role("heading", name="Request generated:").wait_for(timeout=30_000)
    page.wait_for_url("**timeline_request=generated**")
    chromium.settle()
    chromium.assert_sound()


@pytest.mark.browser
def test_a_link_restores_request_and_window(chromium: Browser) -> None:
    link = "requests=200&timeline_request=generated:33&timeline_window=2&timeline_window=9.5"
    chromium.open(f"timeline?{link}", "Timeline")
    page = chromium.page
    page.get_by_role("heading", name="Request generated:33").wait_for(timeout=30_000)
    expect(page.get_by_label("Request to explain")).to_have_value("generated:33")
    ends = page.get_by_test_id("stMain").get_by_role("slider")
    assert [end.input_value() for end in ends.all()] == ["2", "9.5"]
    chromium.assert_sound()
