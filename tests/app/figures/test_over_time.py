"""Figures along the run: points, medians, the state of a server, requests and batches."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

pytest.importorskip("plotly", reason="figures need plotly")
pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.why.shown_run import (
    ShownRun,
    VisibleRequests,
    in_window,
    timeline_data,
)
from servetwin.app.figures import canvas, over_time, timeline
from servetwin.app.figures.over_time import token_rates_per_s
from servetwin.app.figures.timeline import MIXES
from tests.support.dashboard_runs import busy_run
from tests.support.drawn_figures import A
from tests.support.figure_frames import load_test, requests_frame, steps_frame


def test_gains_figure_has_a_trace_per_direction() -> None:
    found = pd.DataFrame(
        {"request_id": ["r2", "r1", "r0"], "scheduled_s": [8.0, 9.0, 10.0],
         "difference": [1.0, 0.0, -0.5]}
    )  # fmt: skip
    figure = over_time.gains_over_time(found, "a", "b")
    assert [trace.name for trace in figure.data] == ["faster under b", "slower under b"]
    assert [list(trace.y) for trace in figure.data] == [[-500.0], [1000.0]]
    assert figure.data[0].marker.symbol != figure.data[1].marker.symbol
    assert figure.layout.xaxis.title.text == "scheduled arrival, s"
    assert figure.layout.yaxis.title.text == "E2E latency difference, ms"
    assert "faster under b: 1 requests" in figure.alt


@given(st.integers(1, 80), st.integers(0, 1000))
def test_throughput_holds_every_token(count: int, seed: int) -> None:
    frame = requests_frame(count, seed)
    edges_s, rates_per_s = token_rates_per_s(frame)
    assert (rates_per_s * np.diff(edges_s)).sum() == pytest.approx(frame["output_tokens"].sum())


def test_the_state_is_that_of_the_steps_and_idle_between_them() -> None:
    one, two = steps_frame(replica=0), steps_frame(replica=1)
    state = over_time.state_of_steps(pd.concat([one, two]), 1000)
    busy = state["at_s"] % 1 < 0.5
    expected = np.floor(state["at_s"]) + 1
    assert (state["running"] == np.where(busy, 2 * expected, 0)).all()
    assert state["kv_usage"].to_numpy() == pytest.approx(
        np.where(busy, 0.01 * (expected - 1), 0), abs=1e-12
    )
    assert over_time.state_of_steps(one, None)["kv_usage"].isna().all()
    assert over_time.state_of_steps(one.drop(columns="replica"), 1000).empty


def test_a_few_requests_have_whole_ticks_and_peaks_are_those_of_the_moments_shown() -> None:
    state = over_time.state_of_steps(steps_frame(replica=0), 1000)
    state = state.assign(running=40.0, waiting=1.0)
    drawn = over_time.server_over_time({"a": state}, canvas.looks(["a"]))
    assert (drawn.layout.yaxis.dtick, drawn.layout.yaxis2.dtick) == (None, 1)
    said = drawn.alt
    assert "at most 40 requests running, 1 waiting, " in said
    assert said.endswith(" at the points shown.")


def test_the_figure_has_one_time_axis_and_the_spans_of_each_request() -> None:
    whole_s = busy_run().start_s, busy_run().end_s
    choice = VisibleRequests(np.arange(9), whole_s, "")
    shown = timeline_data(busy_run(), choice)
    chosen = str(shown.requests["request_id"].iloc[3])
    figure = timeline.timeline(shown, chosen)
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
    assert "9 requests" in figure.alt


def test_a_client_sees_its_own_stages_and_failures() -> None:
    status = ["finished"] * 8 + ["failed"] * 2
    run = load_test(10, status=status, error=[""] * 9 + ["<b>timeout</b>"])
    run.requests.loc[8:, ["first_token_s", "last_token_s"]] = np.nan
    seen = of_outcome_like(run)
    figure = timeline.timeline(timeline_data(seen, in_window(seen, (0.0, 99.0))))
    names = {trace.name for trace in figure.data}
    assert names == {"client late", "until the first token", "streaming", "not finished"}
    failed = next(trace for trace in figure.data if trace.name == "not finished")
    assert failed.text[1] == "r9: failed (&lt;b>timeout&lt;/b>)"
    assert "2 of them not finished, seen by a client" in figure.alt


def of_outcome_like(run: Any) -> ShownRun:
    from servetwin.sim.explain.explain import Explainer

    return ShownRun(run, Explainer(run), None)


def test_the_bars_of_a_request_lie_end_to_end() -> None:
    waiting, prefill, decode = timeline.gantt(A).data
    assert waiting.base[0] == pytest.approx(A["scheduled_s"][0])
    starts_s = [np.asarray(bar.base, float) for bar in (waiting, prefill, decode)]
    ends_s = [np.add(bar.base, bar.x).astype(float) for bar in (waiting, prefill, decode)]
    for end_s, next_s in zip(ends_s, [*starts_s[1:], A["last_token_s"].to_numpy()], strict=True):
        assert_allclose(end_s, next_s, rtol=0, atol=1e-4)
    outside = timeline.gantt(load_test().requests)
    assert [trace.name for trace in outside.data] == ["until the first token", "streaming"]


def test_a_swim_lane_is_a_session_with_its_turns_pauses_and_joins() -> None:
    """The root begins a sub-agent of two turns and waits for it; the last turn failed."""
    task = pd.DataFrame(
        {"request_id": ["plan", "look", "read", "join", "end"],
         "session": ["root", "root/1", "root/1", "root", "root"],
         "parents": [[], ["plan"], ["look"], ["plan", "read"], ["join"]],
         "scheduled_s": [0.0, 3.0, 6.0, 9.0, 12.0], "first_token_s": [1.0, 4.0, 7.0, 10.0, None],
         "last_token_s": [2.0, 5.0, 8.0, 11.0, None], "queue_s": 0.5,
         "status": [*["finished"] * 4, "failed"], "error": [*[None] * 4, "http_5xx"]}
    )  # fmt: skip
    figure = timeline.swim_lanes(task.sample(frac=1, random_state=1), "look")
    drawn = {trace.name: trace for trace in figure.data}
    assert list(figure.layout.yaxis.ticktext) == ["root", "root/1"]
    assert sorted(zip(drawn["decode"].y, drawn["decode"].base, strict=True)) == [
        (0, 1.0), (0, 10.0), (1, 4.0), (1, 7.0)
    ]  # fmt: skip
    pauses = drawn["tools and pauses"]
    spans_s = sorted(zip(pauses.y, pauses.base, pauses.x, strict=True))
    assert spans_s == [(0, 2.0, 7.0), (0, 11.0, 1.0), (1, 5.0, 1.0)]
    begins, waits = drawn["begins a session"], drawn["waits for a session"]
    assert (list(begins.x)[:2], list(begins.y)[:2]) == ([2.0, 3.0], [0.0, 1.0])
    assert (list(waits.x)[:2], list(waits.y)[:2]) == ([8.0, 9.0], [1.0, 0.0])
    assert len(begins.x) == len(waits.x) == 3
    cross, mark = drawn["not finished"], drawn["this request"]
    assert (list(cross.x), list(cross.y), list(cross.customdata)) == ([12.0], [0], ["end"])
    assert (list(mark.x), list(mark.y)) == ([3.0], [1])
    assert "this request" not in {trace.name for trace in timeline.swim_lanes(task).data}
    assert figure.alt == "A task of 5 requests in 2 sessions, 11 s long."


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
    bars = timeline.batch_bars(steps, most)
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
    assert timeline.batch_bars(frame)["mix"].tolist() == [mix]
