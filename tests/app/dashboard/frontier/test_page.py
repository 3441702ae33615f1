"""The page Frontier: its grid and conclusion, its figure, and the page, also in a browser."""

import re
import time
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")

from app import figures
from app.dashboard.frontier.frontier_grid import (
    Y_TITLES,
    conclusion,
    frontier_points,
    level_table,
    values_of,
)
from app.dashboard.jobs.scenario_grid import (
    GridScenario,
    parse_numbers,
    points_frame,
    simulate_point,
    with_values,
)
from app.dashboard.scenario.controls import CONTROLS
from app.scenario.scenario_file import ScenarioError, ScenarioFile, Workload
from sim.experiments.frontier import GOODPUT, INTERACTIVITY, THROUGHPUT, on_front
from sim.experiments.sweep import PROBLEM
from tests.support.dashboard_app import Browser, page_test
from workloads.sample import sample_trace

SMALL = ScenarioFile(workload=Workload(requests=60))


@pytest.mark.parametrize(
    ("axis", "text", "values"),
    [
        ("rate", "2, 4 8", [2, 4, 8]),
        ("rate", "", []),
        ("max_seqs", "16,16,64", [16, 64]),
        ("replicas", "1", [1]),
    ],
)
def test_values_are_read(axis: str, text: str, values: list[float]) -> None:
    assert parse_numbers(text, axis) == values


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"rate": "2, fast"}, "Requests per second: 'fast'"),
        ({"rate": "0"}, "Requests per second: '0'"),
        ({"rate": "2", "max_seqs": "1.5"}, "Sequences in a batch: '1.5'"),
        ({"rate": "2", "replicas": "1000"}, "Replicas: '1000'"),
        ({"rate": " "}, "name at least one rate"),
        ({"rate": ",".join(map(str, range(1, 70))), "max_seqs": "1,2,3"}, "207 points; at most"),
    ],
)
def test_what_cannot_be_a_grid_names_the_field(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(message)):
        frontier_points(texts)


def test_points_are_all_combinations_series_by_series() -> None:
    points = frontier_points({"rate": "4, 2", "max_seqs": "64, 16", "replicas": "1"})
    assert [(p["max_seqs"], p["rate"]) for p in points] == [(16, 2), (16, 4), (64, 2), (64, 4)]
    assert points[0]["label"] == "16 sequences, 1 replica at 2 requests/s"
    assert values_of(points[0]) == {"rate": 2, "max_seqs": 16, "replicas": 1}
    (alone,) = frontier_points({"rate": "3"})
    assert alone["series"] == "this scenario"


def test_values_lie_over_the_scenario_and_nothing_else_changes() -> None:
    base = ScenarioFile(policies={"batching": "chunked"}, cluster={"router": "random"})
    file = with_values(base, {"rate": 3.0, "max_seqs": 8, "token_budget": 64, "replicas": 2})
    assert file.workload == base.workload.model_copy(update={"rate_per_s": 3.0})
    assert file.policies == {"batching": "chunked", "max_seqs": 8, "token_budget": 64}
    assert file.cluster == {"router": "random", "replicas": 2}
    assert with_values(base, {}) == base


def test_a_scene_has_the_figures_of_its_scenario_or_its_problem() -> None:
    row = simulate_point(GridScenario(with_values(SMALL, {"rate": 4.0, "replicas": 2})))
    assert (row["servers"], row["finished"], row[PROBLEM]) == (2, 60, "")
    assert row["goodput_per_server_per_s"] == row["goodput_per_s"] / 2
    given = ScenarioFile(workload=Workload(source="mine", requests=30, rate_per_s=None))
    assert simulate_point(GridScenario(given, sample_trace()))["finished"] == 30
    assert "mine" in simulate_point(GridScenario(given))[PROBLEM]
    broken = SMALL.over({"kv": "contiguous", "prefix_cache": True}, {})
    assert simulate_point(GridScenario(broken))[PROBLEM]


def grid_frame() -> pd.DataFrame:
    points = frontier_points({"rate": "1, 2", "max_seqs": "4, 8"})
    rows = {
        place: {INTERACTIVITY: x, GOODPUT: y, "slo_attainment": a, "ttft_s_p99": 0.1, PROBLEM: ""}
        for place, (x, y, a) in enumerate(
            [(60.0, 1.0, 1.0), (40.0, 1.9, 0.992), (60.0, 1.0, 1.0), (30.0, 2.0, 0.7)]
        )
    }
    frame = points_frame(points, rows)
    return frame.assign(on_front=on_front(frame, INTERACTIVITY, GOODPUT))


def test_the_conclusion_names_the_best_point_or_the_nearest() -> None:
    assert conclusion(grid_frame(), GOODPUT, 0.99).startswith(
        "Best: 4 sequences at 2 requests/s, with 1.9 requests/s per replica and 40 tokens/s"
    )
    missed = grid_frame().assign(slo_attainment=[0.1, 0.2, 0.4, 0.3])
    assert "nearest is 8 sequences at 1 requests/s, with 40.0 %" in conclusion(
        missed, GOODPUT, 0.99
    )
    assert "could be simulated" in conclusion(
        missed.assign(slo_attainment=float("nan")), GOODPUT, 0.99
    )


def test_the_table_has_the_highest_at_each_level() -> None:
    table = level_table(grid_frame(), [30, 50, 100], GOODPUT)
    assert table[Y_TITLES[GOODPUT]].tolist()[:2] == [2.0, 1.0]
    assert table["by"].tolist()[0] == "8 sequences at 2 requests/s"
    assert table.iloc[2, 1:].isna().all()


def test_the_figure_has_a_line_per_series_the_front_the_star_and_the_region() -> None:
    frame = grid_frame()
    figure = figures.frontier(
        frame, GOODPUT, Y_TITLES[GOODPUT], figures.looks(frame["series"]),
        share=0.99, best=1, tpot_limit_s=0.02,
    )  # fmt: skip
    assert figure.layout.xaxis.title.text == "speed for a user, tokens/s (1 / median TPOT)"
    assert figure.layout.yaxis.title.text == Y_TITLES[GOODPUT]
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces) == ["Pareto front", "4 sequences", "8 sequences", "best within the SLO"]
    assert traces["8 sequences"].marker.symbol[1].endswith("-open")
    assert not traces["4 sequences"].marker.symbol[1].endswith("-open")
    assert traces["4 sequences"].customdata == (0, 1)
    assert "99.2 % within the SLO" in traces["4 sequences"].text[1]
    assert list(traces["best within the SLO"].x) == [40.0]
    (region,) = figure.layout.shapes
    assert (region.x0, region.x1) == (50.0, figure.layout.xaxis.range[1])
    assert "Best is 4 sequences at 2 requests/s" in figures.alt_text(figure)
    empty = figures.frontier(
        frame.iloc[:0], THROUGHPUT, Y_TITLES[THROUGHPUT], {}, share=0.99, tpot_limit_s=0.02
    )
    assert [len(trace.x) for trace in empty.data] == [0]


def run_to_the_end(at: Any) -> Any:
    for _ in range(200):
        if not at.session_state["jobs"]["frontier"].is_running:
            return at.run()
        time.sleep(0.1)
    raise AssertionError("the grid did not end")


def test_the_page_runs_a_grid_concludes_and_offers_the_data() -> None:
    at = page_test("frontier")
    at.session_state["requests"] = 60
    at.run()
    assert not at.exception
    assert not at.error
    at.text_input(key="frontier_rate").set_value("2, 4")
    at.text_input(key="frontier_max_seqs").set_value("16")
    at.button[0].click().run()
    run_to_the_end(at)
    assert not at.exception
    assert at.markdown[0].value.startswith("**Best: 16 sequences at 4 requests/s")
    at.number_input(key="ttft_ms").set_value(100.0).run()
    assert "has changed" in at.info[0].value


def test_a_wrong_field_is_one_error_and_no_grid() -> None:
    at = page_test("frontier")
    at.session_state["requests"] = 60
    at.run()
    at.text_input(key="frontier_rate").set_value("often")
    at.button[0].click().run()
    assert "often" in at.error[0].value
    assert "frontier" not in at.session_state["jobs"]


def test_the_defaults_are_a_grid() -> None:
    at = page_test("frontier")
    at.session_state["requests"] = 60
    at.run()
    texts = {
        axis: at.text_input(key=f"frontier_{axis}").value
        for axis in ("rate", "max_seqs", "token_budget", "replicas")
    }
    assert len(frontier_points(texts)) > 10
    assert set(texts) <= set(CONTROLS)


@pytest.mark.browser
def test_a_click_on_a_point_loads_its_scenario(chromium: Browser) -> None:
    chromium.open("frontier?requests=100&frontier_rate=3%2C+6&frontier_max_seqs=7", "Frontier")
    page = chromium.page
    page.get_by_role("button", name="Run the grid").click()
    page.get_by_role("heading", name="At a given speed for a user").wait_for(timeout=60_000)
    page.locator(".js-plotly-plot .points path").nth(1).click(force=True)
    page.wait_for_url("**rate=6**")
    assert "max_seqs=7" in page.url
    chromium.settle()
    assert page.get_by_text("has changed").count() == 0
    chromium.assert_sound()


@pytest.mark.browser
def test_stop_keeps_what_is_there_and_another_page_does_not_lose_it(chromium: Browser) -> None:
    chromium.open("frontier?requests=20000&frontier_max_seqs=1%2C2%2C3%2C4%2C5", "Frontier")
    page = chromium.page
    page.get_by_role("button", name="Run the grid").click()
    page.get_by_role("button", name="Stop", exact=True).wait_for(timeout=60_000)
    page.get_by_role("link", name="Policies").click()
    page.get_by_role("heading", name="Policies", level=1).wait_for(timeout=60_000)
    page.get_by_role("link", name="Frontier").click()
    page.get_by_role("button", name="Stop", exact=True).click(timeout=60_000)
    page.get_by_text(re.compile(r"Stopped: \d+ of 40 simulated")).wait_for(timeout=10_000)
    somebody_else = page.context.browser.new_context().new_page()
    other = Browser(somebody_else, chromium.url)
    other.open("frontier", "Frontier")
    assert somebody_else.get_by_text("Stopped").count() == 0
    chromium.assert_sound()
