"""Loads on the command line, and against a prediction."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from servetwin.app.cli import app
from servetwin.sim.records.run import Run, load_run
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.reading import read_trace
from tests.support.mock_endpoint import evenly, mocked, plan
from tests.support.mock_load import chats
from tests.support.paths import ROOT


def invoke(url: str, out: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["loadtest", url, "--out", str(out), *options])


def served(out: Path, *options: str, ttft_ms: float = 20.0) -> tuple[Result, Run]:
    with mocked(plan(ttft_ms=ttft_ms, itl_ms=5)) as (server,):
        result = invoke(server.url, out, *options)
    return result, load_run(out)


@pytest.mark.slow
def test_a_generated_load_is_in_its_folder(tmp_path: Path) -> None:
    asked = ["--arrivals", "gamma:cv=2", "--rate", "30", "--duration", "1", "--seed", "4"]
    lengths = ["--prompt-tokens", "uniform:mean=20,cv=0.2", "--output-tokens", "3"]
    result, run = served(tmp_path / "run", *asked, *lengths)
    assert result.exit_code == 0, result.output
    kept = read_trace(tmp_path / "run" / "trace.jsonl")
    assert [r.request_id for r in kept] == run.requests["request_id"].tolist()
    assert np.allclose([r.arrival_s for r in kept], run.requests["scheduled_s"])
    assert (run.requests["output_tokens"] == 3).all()
    assert run.scenario["load"] == {
        "arrivals": "gamma:cv=2", "rate_per_s": 30.0, "duration_s": 1.0, "seed": 4,
        "prompt_tokens": "uniform:mean=20,cv=0.2", "output_tokens": "3",
    }  # fmt: skip
    _, other = served(tmp_path / "again", *asked, *lengths)
    assert other.requests["scheduled_s"].tolist() == run.requests["scheduled_s"].tolist()


def test_a_closed_loop_can_be_predicted_from_the_trace_it_leaves(tmp_path: Path) -> None:
    asked = ["--concurrency", "3", "--limit", "12", "--think-time", "0.02"]
    lengths = ["--prompt-tokens", "8", "--output-tokens", "4"]
    result, _ = served(tmp_path / "first", *asked, *lengths)
    assert result.exit_code == 0, result.output
    assert "in a closed loop of 3 users" in result.stdout
    trace, predicted = tmp_path / "first" / "trace.jsonl", tmp_path / "predicted"
    simulated = CliRunner().invoke(
        app, ["replay", str(trace), "--replications", "0", "--out", str(predicted)]
    )
    assert simulated.exit_code == 0, simulated.output
    result, _ = served(tmp_path / "second", *asked, *lengths, "--against", str(predicted))
    assert not isinstance(result.exception, Exception), result.output
    assert "request by request: 12 matched, 0 not" in result.stdout
    assert load_run(predicted).requests["sent_s"].max() > 0.02


def test_sessions_are_compared_with_a_prediction_in_a_closed_loop(tmp_path: Path) -> None:
    write_trace(chats(3, 2), tmp_path / "chats.jsonl")
    open_, closed = tmp_path / "open", tmp_path / "closed"
    for folder, option in ((open_, "--open-loop"), (closed, "--closed-loop")):
        asked = ["replay", str(tmp_path / "chats.jsonl"), option, "--replications", "0"]
        done = CliRunner().invoke(app, [*asked, "--out", str(folder)])
        assert done.exit_code == 0, done.output
    asked = ["--trace", str(tmp_path / "chats.jsonl"), "--against"]
    result, _ = served(tmp_path / "run", *asked, str(closed), "--warm-up", "0.01")
    assert "request by request: 5 matched, 0 not" in result.stdout
    with mocked(plan()) as (server,):
        result = invoke(server.url, tmp_path / "refused", *asked, str(open_))
    assert "the prediction is for an open loop" in str(result.exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cancel", "share=1,after=1tokens", "--limit", "4"], "--against and --cancel"),
        (["--duration", "1"], "give --limit N"),
    ],
)
def test_what_cannot_be_predicted_is_refused(
    tmp_path: Path, options: list[str], message: str
) -> None:
    with mocked(plan()) as (server,):
        asked = ["--concurrency", "2", "--against", str(tmp_path), *options]
        result = invoke(server.url, tmp_path / "run", *asked)
        assert server.text_requests == 0
    assert message in str(result.exception)


def test_a_traces_loop_and_time_scale_on_the_command_line(tmp_path: Path) -> None:
    write_trace(evenly(4, 10, 2), tmp_path / "t.jsonl")
    asked = ["--trace", str(tmp_path / "t.jsonl"), "--loop", "2", "--time-scale", "0.5"]
    result, run = served(tmp_path / "run", *asked)
    assert result.exit_code == 0, result.output
    assert np.allclose(run.requests["scheduled_s"], np.arange(8) / 20)
    assert not (tmp_path / "run" / "trace.jsonl").exists()


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
def test_ctrl_c_ends_users_in_order(tmp_path: Path, processes: str) -> None:
    out = tmp_path / "run"
    with mocked(plan(ttft_ms=50, itl_ms=10)) as (server,):
        asked = ["--concurrency", "2", "--duration", "600", "--processes", processes]
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "servetwin.app.cli",
                "loadtest",
                server.url,
                "--out",
                str(out),
                *asked,
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline_s = time.monotonic() + 60
        while server.text_requests < 6 and time.monotonic() < deadline_s:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 1, stderr
    assert stderr.splitlines()[-1].startswith("servetwin: interrupted: ")
    assert "CLOSED LOOP" in stdout
    summary = json.loads((out / "summary.json").read_text())
    assert summary["requests"]["finished"] >= 2
    assert summary["delivered"]["interrupted"] is True
