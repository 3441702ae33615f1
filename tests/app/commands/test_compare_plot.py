"""``compare --plot``: runs and their baseline in one picture."""

import json
from pathlib import Path

import pytest

pytest.importorskip("plotly", reason="pictures need plotly")

from tests.support.command import refused, servetwin
from tests.support.gate_runs import noisy_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for place, name in enumerate(("before", "after", "other/after")):
        noisy_run(seed=place).save(folder / name)
    return folder


def test_runs_and_their_baseline_are_lines_of_one_chart(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "c.html"
    done = servetwin("compare", runs / "before", runs / "after", "--plot", path)
    assert done.code == 0, done.err
    page = path.read_text()
    assert '"name":"before"' in page
    assert '"name":"after"' in page
    assert "Measured: " in page
    assert done.out.splitlines()[-1].startswith(f"picture: {path}")


def test_runs_of_the_same_name_keep_their_places(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "c.html"
    three = ("compare", runs / "before", runs / "after", runs / "other" / "after")
    done = servetwin(*three, "--plot", path, "--chart", "tpot", "--json")
    assert json.loads(done.out)["outcome"]
    page = path.read_text()
    assert "other" in page
    assert "Distribution of TPOT" in page


def test_a_gate_that_refuses_has_its_picture_too(runs: Path, tmp_path: Path) -> None:
    slower = tmp_path / "slower"
    noisy_run(1.5, seed=9).save(slower)
    path = tmp_path / "c.html"
    done = servetwin("compare", runs / "before", slower, "--gate", "--plot", path)
    assert done.code == 1
    assert path.exists()


def test_what_cannot_be_drawn_is_refused_first(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "c.html").write_text("<!DOCTYPE html>")
    two = ("compare", runs / "before", runs / "after")
    assert "--overwrite replaces it" in refused(*two, "--plot", tmp_path / "c.html")
    assert "shows one run" in refused(*two, "--plot", tmp_path / "d.html", "--chart", "requests")


def test_a_chart_that_the_runs_cannot_fill_is_said_after_the_verdict(
    runs: Path, tmp_path: Path
) -> None:
    two = ("compare", runs / "before", runs / "after")
    done = servetwin(*two, "--plot", tmp_path / "d.html", "--chart", "server")
    assert done.code == 2
    assert "do not know what their server did" in done.err
    assert "The gate" in done.out
