"""``replay --plot``: a picture beside the report, of one run or of two policies."""

import json
from pathlib import Path
from typing import get_args

import pytest

pytest.importorskip("plotly", reason="pictures need plotly")

from servetwin.app.scenario.options.common import RunChart
from tests.support.command import refused, servetwin
from tests.support.paths import SAMPLE

REPLAY = ("replay", SAMPLE, "--limit", 20, "--replications", 0)
COMPARE = ("replay", "compare", "static", "vllm-v1", *REPLAY[1:])


@pytest.mark.parametrize("chart", get_args(RunChart))
def test_every_chart_of_a_run_can_be_drawn(chart: RunChart, tmp_path: Path) -> None:
    path = tmp_path / "c.html"
    done = servetwin(*REPLAY, "--plot", path, "--chart", chart)
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1].startswith(f"picture: {path}, ")
    page = path.read_text()
    assert "20 generated requests" in page
    assert f"servetwin replay {SAMPLE.name} --limit 20 --replications 0" in page
    assert str(SAMPLE.parent) not in page


def test_two_policies_are_in_one_picture(tmp_path: Path) -> None:
    path = tmp_path / "c.html"
    done = servetwin(*COMPARE, "--plot", path)
    assert done.code == 0, done.err
    assert {'"name":"static"' in path.read_text(), '"name":"vllm-v1"' in path.read_text()} == {True}
    done = servetwin(
        "replay", "compare", "static", "static", *REPLAY[1:], "--plot", path, "--overwrite"
    )
    assert '"name":"B: static"' in path.read_text()


def test_the_run_is_kept_and_stdout_stays_json(tmp_path: Path) -> None:
    path, out = tmp_path / "c.html", tmp_path / "run"
    done = servetwin(*REPLAY, "--plot", path, "--out", out, "--json")
    assert json.loads(done.out)["requests"]["finished"] == 20
    assert f"picture: {path}" in done.err
    assert (out / "summary.json").exists()
    assert "is there; --overwrite replaces it" in refused(*REPLAY, "--plot", path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--chart", "tpot"], "--chart: goes with --plot"),
        (["--dark"], "--dark: goes with --plot"),
        (["--plot", "c.gif"], "unknown extension '.gif'"),
        (["--plot", "c.html", "--chart", "none"], "'none' is not one of"),
        (["--plot", "nowhere/c.html"], "there is no folder nowhere"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused_before_the_simulation(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused(*REPLAY, *options)
    two_runs = refused(*COMPARE, "--plot", "c.html", "--chart", "requests")
    assert "shows one run, and there are 2" in two_runs
    assert not list(tmp_path.iterdir())
