"""Sweeps: grids, files that survive a kill, frontiers, and the command."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.scenario.sweep_axes import Axis, grid, parse_axis, parse_rates
from app.scenario.sweep_file import SweepError, SweepFile
from app.text.text_frontier import BEST, HEIGHT, WIDTH, scatter_lines
from sim.experiments import parallel_map as side_by_side
from sim.experiments import sweep
from sim.experiments.frontier import (
    GOODPUT,
    INTERACTIVITY,
    at_interactivity,
    best_point,
    on_front,
    round_levels,
)
from sim.experiments.parallel_map import map_on_processes, map_on_ray
from sim.experiments.sweep import FIGURE_MEANINGS
from tests.support.command import refused, servetwin
from tests.support.paths import SAMPLE
from workloads.errors import PolicyError, ServetwinError

SLO = ("--slo", "ttft=500ms,tpot=80ms")
GRID = ("--vary", "batching=static,continuous", "--vary", "max_seqs=4,16", "--rates", "1,4")
ALONE = ("--processes", 1, "--limit", 60)


def run(*options: object) -> str:
    done = servetwin("sweep", SAMPLE, *SLO, *ALONE, *options)
    assert done.code == 0, done.err
    return done.out


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("max_seqs=16,64", Axis("max_seqs", ("16", "64"))),
        ("preset=vllm-v1, sglang", Axis("preset", ("vllm-v1", "sglang"))),
        ("hardware=h100,a100-80gb", Axis("hardware", ("h100", "a100-80gb"))),
        ("technique=none,weight-int4", Axis("technique", ("none", "weight-int4"))),
        ("prefix_cache=true,off", Axis("prefix_cache", ("true", "off"))),
        ("replicas=1,2", Axis("replicas", ("1", "2"))),
    ],
)
def test_an_axis_is_a_setting_and_its_values(text: str, axis: Axis) -> None:
    assert parse_axis(text) == axis


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_seqs", "not KEY=VALUE"),
        ("max_seqs=4,,8", "not KEY=VALUE"),
        ("max_seq=4", "did you mean 'max_seqs'"),
        ("max_seqs=4,x", "'x' is not a whole number"),
        ("max_seqs=4,4", "names a value twice"),
        ("preset=vlm-v1", "vllm-v1"),
    ],
)
def test_impossible_axes_say_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse_axis(text)


def test_rates_and_combinations() -> None:
    assert parse_rates("2, 4,2") == (2.0, 4.0)
    for text in ("2,x", "0", "-1", "inf"):
        with pytest.raises(PolicyError, match="--rates"):
            parse_rates(text)
    axes = [parse_axis("max_seqs=4,8"), parse_axis("batching=static,chunked")]
    assert len(list(grid(axes))) == 4
    assert list(grid([])) == [{}]
    with pytest.raises(PolicyError, match="varied twice"):
        list(grid([axes[0], axes[0]]))


@pytest.mark.parametrize("name", ["points.csv", "points.parquet"])
def test_a_grid_has_a_row_per_point_and_goes_on_where_it_ended(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, simulated = tmp_path / name, sweep.simulate_point
    asked: list[Any] = []

    def killed_at_the_fourth(conditions: Any, point: Any) -> Any:
        asked.append(point)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return simulated(conditions, point)

    monkeypatch.setattr(sweep, "simulate_point", killed_at_the_fourth)
    killed = servetwin("sweep", SAMPLE, *SLO, *ALONE, *GRID, "--out", out)
    assert (killed.code, killed.out) == (130, "")
    assert len(read(out)) == 3
    run(*GRID, "--out", out)
    assert len(asked) == 4 + 5
    whole = read(out)
    run(*GRID, "--out", tmp_path / f"whole-{name}")
    pd.testing.assert_frame_equal(whole, read(tmp_path / f"whole-{name}"))
    assert len(whole) == 8
    assert list(whole.columns)[:3] == ["batching", "max_seqs", "rate_per_s"]
    before = len(asked)
    run("--vary", "batching=static,continuous", "--vary", "max_seqs=4,16", "--rates", "1,4,6",
        "--out", out)  # fmt: skip
    assert (len(asked) - before, len(read(out))) == (4, 12)


def test_figures_are_those_of_replay() -> None:
    (point,) = json.loads(run("--rates", 4, "--batching", "chunked", "--json"))["points"]
    replayed = servetwin(
        "replay", SAMPLE, "--limit", 60, "--rate", 4, "--batching", "chunked", "--json",
        "--replications", 0,
    )  # fmt: skip
    summary = json.loads(replayed.out)
    assert point["tpot_s_p99"] == pytest.approx(summary["tpot_s"]["p99"])
    assert point["interactivity_tokens_per_s"] == pytest.approx(1 / summary["tpot_s"]["p50"])
    assert point["output_tokens_per_server_per_s"] == pytest.approx(
        summary["output_throughput_tokens_per_s"]
    )
    assert set(FIGURE_MEANINGS) <= set(point)


def test_servers_and_clusters_can_vary_and_an_impossible_point_is_one_row() -> None:
    options = ("--vary", "hardware=h100,a100-80gb", "--vary", "replicas=1,2", "--rates", "4")
    points = json.loads(run("--model", "llama-2-7b", "--hardware", "h100", *options, "--json"))
    assert [p["servers"] for p in points["points"]] == [1, 2, 1, 2]
    h100, a100 = points["points"][0], points["points"][2]
    assert h100["tpot_s_p50"] < a100["tpot_s_p50"]
    text = run("--vary", "technique=none,weight-int4", "--rates", "1")
    assert "1 x could not be: --technique: needs --model and --hardware" in text


def test_the_text_has_the_frontier_its_best_point_and_fits() -> None:
    text = run(*GRID)
    assert max(map(len, text.splitlines())) <= 100
    assert "best: batching=continuous" in text
    assert text.count("* best") == 1
    (row,) = [line for line in text.splitlines() if line.endswith("* best")]
    assert "continuous" in row


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vary", "max_seq=4"], "did you mean 'max_seqs'"),
        (["--rates", "fast"], "--rates: 'fast' is not a number"),
        (["--out", "points.json"], "wants the ending .csv or .parquet"),
        (["--ray"], "--ray needs ray"),
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str) -> None:
    assert message in refused("sweep", SAMPLE, *SLO, *options)


def test_the_file_of_another_sweep_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "points.csv"
    run("--rates", "1", "--out", out)
    before = out.read_bytes()
    for other in (["--seed", 1], ["--max-seqs", 4], ["--vary", "max_seqs=4"]):
        said = refused("sweep", SAMPLE, *SLO, *ALONE, "--rates", 1, "--out", out, *other)
        assert "is not of this sweep" in said
    assert out.read_bytes() == before
    out.write_text("a,b\n1,2\n")
    assert "is not of this sweep" in refused("sweep", SAMPLE, *SLO, *ALONE, "--out", out)
    (tmp_path / "points.parquet").write_text("no")
    with pytest.raises(SweepError, match="not a readable frame"):
        SweepFile(tmp_path / "points.parquet", [], [], "x")


def square(shared: int, item: int) -> int:
    return shared + item**2


@pytest.mark.parametrize("processes", [1, 2])
def test_items_side_by_side_come_with_their_places(processes: int) -> None:
    assert dict(map_on_processes(square, 1, [3, 1, 2], processes)) == {0: 10, 1: 2, 2: 5}


def test_ray_gets_every_item_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the calls that Ray documents; Ray itself is no dependency of the tests."""
    stand_in = SimpleNamespace(
        init=lambda **_: None,
        put=lambda value: value,
        remote=lambda function: SimpleNamespace(remote=lambda *given: (function, given)),
        wait=lambda waiting: (waiting[-1:], waiting[:-1]),
        get=lambda task: task[0](*task[1]),
    )
    monkeypatch.setattr(side_by_side, "find_spec", lambda _: True)
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    assert dict(map_on_ray(square, 1, [3, 1, 2])) == {0: 10, 1: 2, 2: 5}


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "find_spec", lambda _: None)
    with pytest.raises(ServetwinError, match=r"servetwin\[sweep\]"):
        list(map_on_ray(square, 1, [1]))


VALUES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


@given(VALUES)
def test_the_front_is_what_nothing_beats(values: list[tuple[int, int]]) -> None:
    points = pd.DataFrame(values, columns=["x", "y"], dtype=float)
    expected = [not any(p[0] >= v[0] and p[1] >= v[1] and p != v for p in values) for v in values]
    assert on_front(points, "x", "y").tolist() == expected


def points_frame(**columns: Any) -> pd.DataFrame:
    frame = pd.DataFrame({INTERACTIVITY: [50.0, 20.0, 10.0], GOODPUT: [1.0, 3.0, 4.0], **columns})
    return frame.assign(slo_attainment=[1.0, 0.995, 0.5])


def test_the_best_point_keeps_the_slo() -> None:
    assert best_point(points_frame(), GOODPUT, 0.99) == 1
    assert best_point(points_frame(), GOODPUT, 0.999) == 0
    assert best_point(points_frame(), GOODPUT, 0.4) == 2
    assert best_point(points_frame().assign(slo_attainment=0.1), GOODPUT, 0.99) is None


def test_undefined_points_are_nowhere() -> None:
    points = points_frame().assign(**{INTERACTIVITY: [np.nan, 20.0, 10.0]})
    assert on_front(points, INTERACTIVITY, GOODPUT).tolist() == [False, True, True]
    levels = at_interactivity(points, [15.0, 40.0], GOODPUT)
    assert levels[GOODPUT].tolist()[0] == 3.0
    assert np.isnan(levels[GOODPUT].tolist()[1])


@given(st.lists(st.floats(1e-3, 1e4), min_size=1))
def test_levels_are_round_ascend_and_the_highest_is_reached(values: list[float]) -> None:
    levels = round_levels(pd.Series(values))
    assert levels == sorted(set(levels))
    assert levels[-1] <= max(values)
    assert all(float(f"{level:.2g}") == pytest.approx(level) for level in levels)


def test_a_scatter_has_the_best_at_its_place() -> None:
    lines = scatter_lines(points_frame(), GOODPUT, 1, "requests/s")
    plot = [line.partition("|")[2] for line in lines[1 : HEIGHT + 1]]
    assert (plot[0][int(10 / 50 * WIDTH)], plot[HEIGHT - 1 - int(3 / 4 * HEIGHT)].strip()) == (
        "o", BEST,
    )  # fmt: skip
    assert scatter_lines(points_frame().iloc[:0], GOODPUT, None, "") == []
