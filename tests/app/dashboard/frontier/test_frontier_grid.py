"""The grid of the Frontier page: its points, its conclusion and its table."""

import re

import pandas as pd
import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.frontier.frontier_grid import (
    Y_TITLES,
    conclusion,
    frontier_points,
    level_table,
    series_groups,
    values_of,
)
from servetwin.app.dashboard.jobs.simulated_items import (
    points_frame,
)
from servetwin.app.scenario.files.scenario_file import ScenarioError
from servetwin.sim.experiments.sweep import GOODPUT, INTERACTIVITY, PROBLEM, on_front


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"rate": "2, fast"}, "Requests per second: 'fast'"),
        ({"rate": "0"}, "Requests per second: '0'"),
        ({"rate": "2", "max_seqs": "1.5"}, "Sequences in a batch: '1.5'"),
        ({"rate": "2", "replicas": "1000"}, "Replicas: '1000'"),
        ({"rate": ",".join(map(str, range(1, 70))), "max_seqs": "1,2,3"}, "207 points; at most"),
    ],
)
def test_what_cannot_be_a_grid_names_the_field(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(message)):
        frontier_points(texts)


@pytest.mark.parametrize(
    ("texts", "sizes", "first"),
    [
        ({"max_seqs": "1, 2, 3"}, [3], ""),
        ({"max_seqs": "1, 2, 3, 4, 5, 6"}, [6], ""),
        ({"max_seqs": "1, 2, 3, 4, 5, 6, 7"}, [4, 3], "1 sequence to 4 sequences"),
        (
            {"max_seqs": "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12"},
            [6, 6],
            "1 sequence to 6 sequences",
        ),
        ({"max_seqs": "1, 2, 3, 4", "replicas": "1, 2, 3"}, [4, 4, 4], "1 replica"),
        ({"max_seqs": "1, 2", "replicas": "1, 2, 3, 4, 5, 6"}, [6, 6], "1 sequence"),
        (
            {"max_seqs": "1,2,3,4,5,6,7,8", "replicas": "1,2,3,4,5,6,7"},
            [6, 5, 6, 5, 6, 6, 5, 6, 5, 6],
            "1 sequence, 1 replica to 1 sequence, 6 replicas",
        ),
        ({}, [1], ""),
    ],
)
def test_a_panel_has_six_series_at_most_of_one_setting_where_that_does(
    texts: dict[str, str], sizes: list[int], first: str
) -> None:
    points = frontier_points({"rate": "2, 4", **texts})
    groups = series_groups(points)
    assert [len(names) for names in groups.values()] == sizes
    assert next(iter(groups)) == first
    listed = [name for names in groups.values() for name in names]
    assert sorted(listed) == sorted({point["series"] for point in points})


def test_points_are_all_combinations_series_by_series() -> None:
    points = frontier_points({"rate": "4, 2", "max_seqs": "64, 16", "replicas": "1"})
    assert [(p["max_seqs"], p["rate"]) for p in points] == [(16, 2), (16, 4), (64, 2), (64, 4)]
    assert points[0]["label"] == "16 sequences, 1 replica at 2 requests/s"
    assert values_of(points[0]) == {"rate": 2, "max_seqs": 16, "replicas": 1}
    (alone,) = frontier_points({"rate": "3"})
    assert alone["series"] == "this scenario"


def test_an_empty_field_is_as_in_the_scenario_also_the_rate() -> None:
    points = frontier_points({"rate": " ", "max_seqs": "64, 16"})
    assert [values_of(point) for point in points] == [{"max_seqs": 16}, {"max_seqs": 64}]
    assert [point["label"] for point in points] == ["16 sequences", "64 sequences"]
    (alone,) = frontier_points({})
    assert values_of(alone) == {}
    assert alone["label"] == "this scenario"


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
    assert table["point"].tolist()[0] == "8 sequences at 2 requests/s"
    assert table.iloc[2, 1:].isna().all()
