"""Loads on the command line, against a prediction and against a baseline."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from servetwin.app.cli import app
from servetwin.loadtest.mock.server import MockServer
from servetwin.sim.records.run import Run, load_run
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.reading import read_trace
from tests.support.command import SERVER
from tests.support.gate_runs import noisy_run
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
        app, ["replay", str(trace), *SERVER, "--replications", "0", "--out", str(predicted)]
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
        asked = ["replay", str(tmp_path / "chats.jsonl"), *SERVER, option, "--replications", "0"]
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


def test_a_traces_loop_and_rate_scale_on_the_command_line(tmp_path: Path) -> None:
    write_trace(evenly(4, 10, 2), tmp_path / "t.jsonl")
    asked = ["--trace", str(tmp_path / "t.jsonl"), "--loop", "2", "--rate-scale", "2"]
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
    assert stderr.splitlines()[-1].startswith("servetwin: interrupted; ")
    assert "CLOSED LOOP" in stdout
    summary = json.loads((out / "summary.json").read_text())
    assert summary["requests"]["finished"] >= 2
    assert summary["delivered"]["interrupted"] is True


REQUESTS = 40
CLEAR = "tpot=50%,ttft=50%"
"""Limits beyond what a busy machine does, with servers that differ by a factor of three."""


@pytest.fixture(scope="module")
def servers() -> Iterator[list[MockServer]]:
    with mocked(plan(ttft_ms=60, itl_ms=10), plan(ttft_ms=180, itl_ms=30)) as both:
        yield both


@pytest.fixture(scope="module")
def folder(servers: list[MockServer], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    write_trace(evenly(REQUESTS, 40, 6), folder / "trace.jsonl")
    result = loadtest(folder, servers[0].url, "baseline")
    assert result.exit_code == 0, result.output
    return folder


def loadtest(folder: Path, url: str, out: str, *options: str) -> Result:
    arguments = ["--trace", str(folder / "trace.jsonl"), "--out", str(folder / out), *options]
    return CliRunner().invoke(app, ["loadtest", url, *arguments])


def judged_by_figures(found: dict[str, object], result: Result) -> bool:
    """Whether the machine let the client be on time: else there is a doubt, and no verdict."""
    codes = {"holds": 0, "refuted": 1, "cannot tell": 3}
    assert result.exit_code == codes[str(found["outcome"])]
    return not found["doubts"]


@pytest.mark.slow
def test_a_slow_server_is_refuted_against_a_run(servers: list[MockServer], folder: Path) -> None:
    options = ["--baseline", str(folder / "baseline"), "--allow", CLEAR, "--json"]
    result = loadtest(folder, servers[1].url, "slow", *options)
    found = json.loads(result.stdout)["gate"]
    rows = {row["metric"]: row for row in found["metrics"]}
    assert rows["tpot_s.mean"]["outcome"] == "refuted"
    assert rows["tpot_s.mean"]["change"] > 1
    if judged_by_figures(found, result):
        said = "servetwin: the run is worse than the baseline by more than is allowed"
        assert result.stderr.splitlines()[-1] == said
    salts = {load_run(folder / run).meta["prompt_salt"] for run in ("baseline", "slow")}
    assert len(salts) == 2, "a prefix cache that outlived the baseline must not help"


def test_the_same_server_is_not_refuted(servers: list[MockServer], folder: Path) -> None:
    options = ["--baseline", str(folder / "baseline"), "--allow", CLEAR]
    result = loadtest(folder, servers[0].url, "again", *options)
    assert result.exit_code in (0, 3)
    assert "The gate holds: 1 run against 1 baseline" in result.stdout or "Cannot" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("slow", [True, False])
def test_two_servers_are_measured_in_turns(
    servers: list[MockServer], folder: Path, slow: bool
) -> None:
    """A known slow-down is refuted, a speed-up passes."""
    fast, slowed = servers[0].url, servers[1].url
    ours, theirs = (slowed, fast) if slow else (fast, slowed)
    out = f"turns-{slow}"
    options = ["--baseline-url", theirs, "--allow", CLEAR, "--prompt-salt", "here"]
    result = loadtest(folder, ours, out, *options, "--json")
    found = json.loads(result.stdout)
    assert (found["baselines"], found["runs"]) == (2, 1)
    if judged_by_figures(found, result):
        assert found["outcome"] == ("refuted" if slow else "holds")
    runs = [load_run(folder / out / at) for at in ("baseline/1", "run/1", "baseline/2")]
    assert [run.meta["prompt_salt"] for run in runs] == [f"here/turn/{n}" for n in range(3)]
    assert [run.scenario["endpoint"]["base_url"] for run in runs] == [
        f"{url}/v1" for url in (theirs, ours, theirs)
    ]
    starts = [run.meta["clock_zero_perf_counter_s"] for run in runs]
    assert starts == sorted(starts)
    again = ["compare", str(folder / out / "baseline"), str(folder / out / "run"), "--gate"]
    judged = CliRunner().invoke(app, [*again, "--allow", CLEAR, "--json"])
    assert json.loads(judged.stdout) == found
    assert judged.exit_code == result.exit_code


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--baseline", "{at}/baseline", "--rate", "20"], "rate 40, but 20 in this load test;"),
        (["--baseline", "{at}/baseline", "--retries", "2"], "retries 0, but 2 in this load test"),
        (["--baseline", "{at}/baseline", "--api", "chat"], "API completions, but chat in this"),
        (["--baseline", "{at}/baseline", "--limit", "9"], "has 40 requests, the trace 9;"),
        (["--baseline", "{at}/replay"], "replay: a simulation; --against judges a prediction"),
        (
            ["--baseline", "{at}/baseline", "--baseline-url", "http://x"],
            "--baseline and --baseline-url exclude each other: give one",
        ),
        (
            ["--against", "{at}/replay", "--baseline", "{at}/baseline"],
            "--against and --baseline exclude each other: give one",
        ),
        (["--allow", "tpot=5%"], "--allow: needs a baseline: --baseline or"),
        (["--baseline", "{at}/baseline", "--allow", "tpot=5"], "tpot=5: not a share such as 5%"),
    ],
)
def test_what_cannot_be_judged_is_refused_before_anything_is_sent(
    servers: list[MockServer], folder: Path, options: list[str], message: str
) -> None:
    noisy_run(kind="simulation").save(folder / "replay")
    sent = servers[0].text_requests
    given = [option.format(at=folder) for option in options]
    result = loadtest(folder, servers[0].url, "never", *given)
    assert isinstance(result.exception, LoadTestError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
    assert servers[0].text_requests == sent
    assert not (folder / "never").exists()


def test_users_without_an_end_have_no_baseline(folder: Path, servers: list[MockServer]) -> None:
    arguments = ["--concurrency", "2", "--duration", "1", "--baseline", str(folder / "baseline")]
    result = CliRunner().invoke(app, ["loadtest", servers[0].url, *arguments])
    assert isinstance(result.exception, LoadTestError)
    assert str(result.exception).startswith("--baseline: users with --duration, and lanes,")
