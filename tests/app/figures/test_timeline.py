"""Requests along time: spans, one axis, failures."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

pytest.importorskip("plotly", reason="figures need plotly")
pytest.importorskip("streamlit", reason="the dashboard needs streamlit")

from servetwin.app import figures
from servetwin.app.dashboard.timeline.timeline_run import (
    TimelineRun,
    in_window,
    slowest,
    timeline_data,
)
from tests.support.dashboard_runs import busy_run
from tests.support.figure_frames import load_test, requests_frame


def test_the_figure_has_one_time_axis_and_the_spans_of_each_request() -> None:
    choice = slowest(busy_run(), 9)
    shown = timeline_data(busy_run(), choice)
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
    from servetwin.sim.explain.explain import Explainer

    return TimelineRun(run, Explainer(run), None)


A, B = requests_frame(seed=1), requests_frame(seed=2)


def test_the_bars_of_a_request_lie_end_to_end() -> None:
    waiting, prefill, decode = figures.gantt(A).data
    assert waiting.base[0] == pytest.approx(A["scheduled_s"][0])
    starts_s = [np.asarray(bar.base, float) for bar in (waiting, prefill, decode)]
    ends_s = [np.add(bar.base, bar.x).astype(float) for bar in (waiting, prefill, decode)]
    for end_s, next_s in zip(ends_s, [*starts_s[1:], A["last_token_s"].to_numpy()], strict=True):
        assert_allclose(end_s, next_s, rtol=0, atol=1e-4)
    outside = figures.gantt(load_test().requests)
    assert [trace.name for trace in outside.data] == ["until the first token", "streaming"]
