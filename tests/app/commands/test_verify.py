"""``verify --url`` over HTTP, on a simulated server in real time."""

import json
from pathlib import Path

import pytest

from app.text.report_folders import find_runs
from loadtest.report.comparison import EXIT_CODES
from sim.records.run import load_run
from tests.support.command import refused, servetwin
from workloads.native import write_trace
from workloads.request import Request
from workloads.trace import Trace

pytest.importorskip("uvicorn")


def test_verify_takes_any_endpoint_and_judges(black_box_url: str, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    requests = [Request(str(i), 0.05 * i, 10 + i, 4) for i in range(30)]
    write_trace(Trace(tuple(requests), "t"), trace)
    options = ("--max-minutes", 1.0, "--max-requests", 80, "--repeats", 1, "--minutes", 0)
    at = ("verify", "--url", black_box_url, "--trace", trace)
    loads = ("--utilisation", 0.5, "--utilisation", 0.6)
    done = servetwin(*at, *options, *loads, "--out", tmp_path / "v")
    assert done.code in (0, 1, 3), done.err
    (folder,) = (tmp_path / "v").iterdir()
    verdict = json.loads((folder / "verdict.json").read_text())
    assert done.code == EXIT_CODES[verdict["outcome"]], done.err
    assert "calibrating as a black box" in done.err
    assert "VERDICT: " in done.out
    assert folder.name == verdict["policy"]
    assert [level["utilisation"] for level in verdict["levels"]] == [0.5, 0.6]
    assert load_run(folder / "at-50" / "predicted").kind == "simulation"
    assert load_run(folder / "at-60" / "measured-1").kind == "loadtest"
    _, trials = find_runs([tmp_path / "v"])
    for trial, level in zip(trials, verdict["levels"], strict=True):
        assert json.loads(json.dumps(trial.comparison.as_dict())) == level["comparison"]


@pytest.mark.parametrize("loads", [(0.7, 0.7), (0.5, 0.701, 0.7)])
def test_loads_that_would_share_a_folder_are_refused(loads: tuple[float, ...]) -> None:
    options = [word for load in loads for word in ("--utilisation", load)]
    line = refused("verify", *options)
    assert "--utilisation: 70 % is given 2 times; loads must differ by at least 0.01" in line


def test_requests_that_the_endpoint_cannot_take_are_counted(
    black_box_url: str, tmp_path: Path
) -> None:
    trace = tmp_path / "long.jsonl"
    lengths = [10] * 18 + [190, 250]
    write_trace(
        Trace(tuple(Request(str(i), 0.1 * i, n, 20) for i, n in enumerate(lengths)), "t"), trace
    )
    line = refused("verify", "--url", black_box_url, "--outside", "--trace", trace)
    assert "2 of 20 requests are longer than the 200 tokens" in line
