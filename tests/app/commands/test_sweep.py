"""Sweeps: grids, files that survive a kill, frontiers, and the command."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from servetwin.app.scenario.files.sweep_file import RATE, SweepFile
from servetwin.sim.experiments import ray_cluster, sweep
from servetwin.sim.experiments.sweep import FIGURE_MEANINGS
from tests.support.command import SERVER, refused, servetwin, with_server
from tests.support.local_ray import local_ray
from tests.support.paths import ROOT, SAMPLE

SLO = ("--slo", "ttft=500ms,tpot=80ms")
GRID = ("--vary", "batching=static,continuous", "--vary", "max_seqs=4,16", "--rates", "1,4")
ALONE = ("--processes", 1, "--limit", 60)


def run(*options: object) -> str:
    done = servetwin("sweep", SAMPLE, *SLO, *ALONE, *with_server(*options))
    assert done.code == 0, done.err
    return done.out


def test_a_grid_has_a_row_per_point_and_goes_on_where_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, simulated = tmp_path / "points.csv", sweep.simulate_point
    asked: list[Any] = []

    def killed_at_the_fourth(conditions: Any, point: Any) -> Any:
        asked.append(point)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return simulated(conditions, point)

    monkeypatch.setattr(sweep, "simulate_point", killed_at_the_fourth)
    killed = servetwin("sweep", SAMPLE, *SERVER, *SLO, *ALONE, *GRID, "--out", out)
    assert killed.code == 1
    goes_on = f"3 of 8 points are in {out}; the same command goes on from there"
    assert killed.err.splitlines()[-1] == f"servetwin: interrupted: {goes_on}"
    assert len(pd.read_csv(out)) == 3
    run(*GRID, "--out", out)
    assert len(asked) == 4 + 5
    whole = pd.read_csv(out)
    run(*GRID, "--out", tmp_path / "whole.csv")
    pd.testing.assert_frame_equal(whole, pd.read_csv(tmp_path / "whole.csv"))
    assert len(whole) == 8
    assert list(whole.columns)[:3] == ["batching", "max_seqs", "rate_per_s"]
    before = len(asked)
    run("--vary", "batching=static,continuous", "--vary", "max_seqs=4,16", "--rates", "1,4,6",
        "--out", out)  # fmt: skip
    assert (len(asked) - before, len(pd.read_csv(out))) == (4, 12)


KILLED_AT_THE_FOURTH = """
import os, signal, sys
from itertools import count
from servetwin.app import cli
from servetwin.sim.experiments import sweep

simulated, numbers = sweep.simulate_point, count(1)

def killed_at_the_fourth(*given):
    if next(numbers) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return simulated(*given)

sweep.simulate_point = killed_at_the_fourth
cli.main()
"""


@pytest.mark.slow
def test_a_sweep_that_is_killed_at_once_goes_on_where_it_was(tmp_path: Path) -> None:
    out, whole = tmp_path / "points.csv", tmp_path / "whole.csv"
    arguments = map(str, ("sweep", SAMPLE, *SERVER, *SLO, *ALONE, *GRID, "--out", out))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_AT_THE_FOURTH, *arguments], check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    assert len(pd.read_csv(out)) == 3
    with out.open("a") as file:
        file.write("static,16,4.0,1,6")  # a line that was cut off
    done = servetwin("sweep", SAMPLE, *SERVER, *SLO, *ALONE, *GRID, "--out", out)
    assert "3 of 8 points are in" in done.err
    run(*GRID, "--out", whole)
    assert out.read_bytes() == whole.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {out.name, whole.name}


DEADLY_IN_A_WORKER = """
import os, signal
from multiprocessing import parent_process
from pathlib import Path
from servetwin.policies.schedulers.continuous import ContinuousBatching

class Deadly(ContinuousBatching):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        for death in range({most} if parent_process() is not None else 0):
            try:  # two workers start at once, and only one of them may take the last death
                (Path(__file__).parent / f"death-{{death}}").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    plug_in, out = tmp_path / "deadly.py", tmp_path / "points.csv"
    plug_in.write_text(DEADLY_IN_A_WORKER.format(most=1))
    grid = ("--vary", f"batching={plug_in}:Deadly", "--rates", "1,2,4")
    two = ("--limit", 60, "--processes", 2, "--out", out)
    done = servetwin("sweep", SAMPLE, *SLO, *with_server(*grid), *two)
    assert (done.code, len(list(tmp_path.glob("death-*")))) == (0, 1)
    run(*grid, "--out", tmp_path / "alone.csv")
    assert out.read_bytes() == (tmp_path / "alone.csv").read_bytes()


@pytest.mark.slow
def test_a_point_whose_worker_is_always_killed_is_named(tmp_path: Path) -> None:
    plug_in, out = tmp_path / "deadly.py", tmp_path / "points.csv"
    plug_in.write_text(DEADLY_IN_A_WORKER.format(most=99))
    batching = f"batching={plug_in}:Deadly,continuous"
    grid = ("--vary", batching, "--rates", "4", "--limit", 60, "--processes", 2, "--out", out)
    done = servetwin("sweep", SAMPLE, *SLO, *with_server(*grid))
    assert done.code == 1
    named = f"servetwin: batching={plug_in}:Deadly at 4 requests/s: the process was killed in each"
    assert done.err.splitlines()[-1].startswith(named)
    assert pd.read_csv(out)["batching"].tolist() == ["continuous"]


@pytest.mark.slow
def test_rows_from_a_ray_cluster_are_those_of_one_process(tmp_path: Path) -> None:
    out, alone = tmp_path / "ray.csv", tmp_path / "alone.csv"
    with local_ray({"num_cpus": 2}) as address:
        done = servetwin(
            "sweep", SAMPLE, *SERVER, *SLO, *GRID, "--limit", 60, "--out", out, "--ray", address
        )
    assert done.code == 0, done.err
    run(*GRID, "--out", alone)
    assert out.read_bytes() == alone.read_bytes()


def test_rows_are_appended_and_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    wanted = [{"max_seqs": str(n), RATE: 1.0} for n in range(5)]
    with SweepFile(path, ["max_seqs"], wanted, "x") as found:
        found.add(wanted[0], {"servers": 1})
        file, begun = path.stat().st_ino, path.read_bytes()
        for point in wanted[1:]:
            found.add(point, {"servers": 1})
    assert path.stat().st_ino == file
    assert path.read_bytes().startswith(begun)
    assert len(pd.read_csv(path)) == 5


def test_rows_that_end_in_another_order_are_ordered_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    wanted = [{"max_seqs": str(n), RATE: 0.1 * n} for n in range(4)]
    with SweepFile(path, ["max_seqs"], wanted, "x") as found:
        for place in (2, 0, 3, 1):
            found.add(wanted[place], {"goodput_per_s": 0.1 + 0.2 * place})
        assert pd.read_csv(path)["max_seqs"].tolist() == [2, 0, 3, 1]
    assert pd.read_csv(path)["max_seqs"].tolist() == [0, 1, 2, 3]
    again = SweepFile(path, ["max_seqs"], wanted, "x").frame()
    assert again["goodput_per_s"].tolist() == [0.1, 0.1 + 0.2, 0.5, 0.1 + 0.2 * 3]


def test_figures_are_those_of_replay() -> None:
    (point,) = json.loads(run("--rates", 4, "--batching", "chunked", "--json"))["points"]
    replayed = servetwin(
        "replay", SAMPLE, *SERVER, "--limit", 60, "--rate", 4, "--batching", "chunked", "--json",
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
    options = ("--vary", "gpu=h100,a100-80gb", "--vary", "replicas=1,2", "--rates", "4")
    points = json.loads(run("--model", "llama-2-7b", "--hardware", "h100", *options, "--json"))
    assert [p["servers"] for p in points["points"]] == [1, 2, 1, 2]
    h100, a100 = points["points"][0], points["points"][2]
    assert h100["tpot_s_p50"] < a100["tpot_s_p50"]
    text = run("--vary", "technique=none,weight-int4", "--rates", "1")
    assert "1 x could not be: --profile: either a profile, or --model and --gpu" in text


def test_techniques_are_varied_on_and_off_as_in_replay(tmp_path: Path) -> None:
    out, sheet = tmp_path / "points.csv", ("--model", "llama-3-8b", "--hardware", "h100")
    toggles = ("--vary", "technique=none,kv-cache", "--vary", "without=none,kv-cache")
    done = servetwin("sweep", SAMPLE, *SLO, *ALONE, *sheet, *toggles, "--rates", "1", "--out", out)
    assert "note: kv-cache is on here already; --without kv-cache takes it away" in done.err
    rows = {(row["technique"], row["without"]): row for row in pd.read_csv(out).to_dict("records")}
    figure = "output_throughput_tokens_per_s"
    plain, on = rows["none", "none"], rows["kv-cache", "none"]
    assert plain[figure] == on[figure] != rows["none", "kv-cache"][figure]
    assert "both on (--technique) and off" in rows["kv-cache", "kv-cache"]["problem"]


def test_the_text_has_the_frontier_its_best_point_and_fits() -> None:
    text = run(*GRID)
    assert max(map(len, text.splitlines())) <= 100
    assert "Best: batching=continuous" in text
    assert text.count("* best") == 1
    (row,) = [line for line in text.splitlines() if line.endswith("* best")]
    assert "continuous" in row


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vary", "max_seq=4"], "did you mean 'max_seqs'"),
        (["--rates", "fast"], "--rates: 'fast' is not a number"),
        (["--out", "points.json"], "points.json: wants the ending .csv"),
        (["--ray", "head"], "--ray: 'head' is no HOST:PORT of a Ray cluster"),
        (["--ray", "127.0.0.1:9"], "--ray: no Ray cluster answers at 127.0.0.1:9; 'ray start"),
        (["--ray=127.0.0.1:9"], "--ray: no Ray cluster answers at 127.0.0.1:9; 'ray start"),
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str) -> None:
    assert message in refused("sweep", SAMPLE, *SLO, *with_server(*options))


def test_a_missing_ray_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "find_spec", lambda _: None)
    assert "--ray needs ray: pip install" in refused("sweep", SAMPLE, *SERVER, *SLO, "--ray")


def test_the_file_of_another_sweep_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "points.csv"
    run("--rates", "1", "--out", out)
    before = out.read_bytes()
    for other in (["--seed", 1], ["--max-seqs", 4], ["--vary", "max_seqs=4"]):
        said = refused("sweep", SAMPLE, *SERVER, *SLO, *ALONE, "--rates", 1, "--out", out, *other)
        assert "is not of this sweep" in said
    assert out.read_bytes() == before
    said = refused("sweep", SAMPLE, *SERVER, *SLO, *ALONE, "--out", out, "--vary", "max_seqs=4")
    assert said.endswith(
        "points.csv: is not of this sweep (it varies nothing, not max_seqs); name another --out, "
        "or --overwrite it"
    )
    out.write_text("a,b\n1,2\n")
    assert "is not of this sweep" in refused("sweep", SAMPLE, *SERVER, *SLO, *ALONE, "--out", out)
    out.write_text("a")
    assert "not a readable frame" in refused("sweep", SAMPLE, *SERVER, *SLO, *ALONE, "--out", out)


def test_a_curve_is_drawn_beside_the_points(tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="figures need plotly")
    picture = tmp_path / "curve.html"
    grid = ("--vary", "batching=static,continuous", "--rates", "2,4", "--plot", picture)
    assert f"figure: {picture}, " in run(*grid)
    assert b'"name":"continuous"' in picture.read_bytes()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--rates", "1,2", "--plot", "{at}/c.eps"), "unknown extension"),
        (("--rates", "1", "--plot", "{at}/c.html"), "two rates or more"),
        (("--plot", "{at}/c.html"), "two rates or more"),
        (("--rates", "1,2", "--plot", "{at}/c.html", "--curve", "p9"), "no figure 'p9'"),
    ],
)
def test_a_curve_that_cannot_be_drawn_is_refused_before_any_work(
    tmp_path: Path, options: tuple[str, ...], complaint: str
) -> None:
    given = [option.format(at=tmp_path) for option in options]
    assert complaint in refused("sweep", SAMPLE, *SLO, *ALONE, *with_server(*given))


def test_lanes_are_swept_and_have_no_rate() -> None:
    out = run("--lanes", "2:duration=5", "--vary", "max_seqs=1,16")
    assert "2 points" in out
    rated = servetwin(
        "sweep", SAMPLE, *SLO, *ALONE, *with_server("--lanes", "2:duration=5", "--rates", "1,4")
    )
    assert rated.code != 0
    assert "lanes wait for their answers and have no rate" in rated.err
