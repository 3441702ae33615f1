"""Tables that explain a request: its parts, and the steps that it waited behind."""

import re
from typing import Any

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.why.request_explanation import (
    behind_table,
    parts_table,
    slowest_table,
)
from servetwin.app.dashboard.why.shown_run import ShownRun
from servetwin.app.figures import stacked_bars
from tests.support.dashboard_runs import busy_run
from tests.support.figure_frames import load_test


def of_outcome_like(run: Any) -> ShownRun:
    from servetwin.sim.explain.explain import Explainer

    return ShownRun(run, Explainer(run), None)


def test_a_request_waited_behind_the_steps_of_its_queue() -> None:
    waits = busy_run().run.requests["queue_s"]
    name = str(busy_run().run.requests["request_id"].iloc[int(waits.argmax())])
    steps = busy_run().explainer.waited_behind(name)
    found = busy_run().explainer.explain(name)
    assert (steps["replica"] == found.replica).all()
    covered_s = (steps["end_s"] - steps["start_s"]).sum()
    assert covered_s == pytest.approx(waits.max(), rel=0.25)
    assert behind_table(steps)["lasted, ms"].sum() == pytest.approx(1e3 * covered_s)


def test_a_load_test_has_nothing_to_wait_behind() -> None:
    assert of_outcome_like(load_test(5)).explainer.waited_behind("r3").empty


def test_tables_and_the_bar_of_parts_sum_to_the_latency() -> None:
    found = busy_run().explainer.slowest(3)
    assert found[0].e2e_s
    table = parts_table(found[0])
    assert found[0].e2e_s > 10, "long enough to be shown in seconds"
    assert table["s"].sum() == pytest.approx(found[0].e2e_s)
    assert table["share, %"].sum() == pytest.approx(100)
    figure = stacked_bars.request_parts(found[0].request_id, found[0].parts_s)
    assert sum(bar.x[0] for bar in figure.data) == pytest.approx(found[0].e2e_s)
    assert figure.alt.endswith(".")
    assert slowest_table(found)["E2E latency, s"].is_monotonic_decreasing


def test_the_slowest_are_told_in_a_few_words_what_delayed_them() -> None:
    told = slowest_table(busy_run().explainer.slowest(10))["what delayed it"]
    assert any(re.fullmatch(r"(waiting|stalled by prompts), \d+ %", text) for text in told)
    measured = slowest_table(of_outcome_like(load_test(5)).explainer.slowest(3))
    assert set(measured["what delayed it"]) == {"not known"}
