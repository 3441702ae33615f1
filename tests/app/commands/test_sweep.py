"""Sweeps: grids, files that survive a kill, frontiers, and the command."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from app.scenario.sweep_file import SweepError, SweepFile
from sim.experiments import ray_cluster, sweep
from sim.experiments.sweep import FIGURE_MEANINGS
from tests.support.command import refused, servetwin
from tests.support.paths import SAMPLE

SLO = ("--slo", "ttft=500ms,tpot=80ms")
GRID = ("--vary", "batching=static,continuous", "--vary", "max_seqs=4,16", "--rates", "1,4")
ALONE = ("--processes", 1, "--limit", 60)


def run(*options: object) -> str:
    done = servetwin("sweep", SAMPLE, *SLO, *ALONE, *options)
    assert done.code == 0, done.err
    return done.out


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)


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
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str) -> None:
    assert message in refused("sweep", SAMPLE, *SLO, *options)


def test_a_missing_ray_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "find_spec", lambda _: None)
    assert "--ray needs ray: pip install" in refused("sweep", SAMPLE, *SLO, "--ray")


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
