import json
import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from servetwin.app.cli import app
from servetwin.app.verdict.claims import EXIT_CODES
from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.report import records
from servetwin.loadtest.run.client import run_load_test
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run, load_run
from servetwin.sim.records.run_claim import ClaimError
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.errors import LoadTestError, TraceError
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.loadtest_server import (
    DONE,
    Reply,
    Script,
    ScriptedServer,
    stream_of,
    text,
    usage,
)
from tests.support.paths import ROOT

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    requests = (Request(f"r{index}", index * 0.05, 7, 3) for index in range(4))
    path = tmp_path / "four.jsonl"
    write_trace(Trace(tuple(requests), "four.jsonl"), path)
    return path


def invoke(url: str, trace: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["loadtest", url, "--trace", str(trace), *options])


def served(script: Script, trace: Path, *options: str) -> tuple[Result, ScriptedServer]:
    with ScriptedServer(script).running() as server:
        return invoke(server.url, trace, *options), server


def test_text_report_and_run_folder(trace_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result, server = served(
        lambda body: stream_of(3), trace_file, "--out", str(out), "--slo", "e2e=100s"
    )
    assert result.exit_code == 0, result.output
    assert len(server.arrivals) == 4
    lines = result.stdout.splitlines()
    assert lines[0].startswith("PASS: 4 of 4 requests finished; requests within the SLO 100 %")
    assert f"load test of mock at {server.url}/v1: 4 requests of four.jsonl" in lines
    assert "4 requests: 4 finished" in lines
    assert f"files: {out}" in lines
    assert max(map(len, lines)) <= 100 + len(str(out))
    run = load_run(out)
    assert run.requests["status"].tolist() == ["finished"] * 4
    assert run.scenario["seed"] == 0


@pytest.mark.parametrize(("cached", "warned"), [(0, False), (6, True)])
def test_prompts_that_the_server_knew_are_a_warning(
    trace_file: Path, tmp_path: Path, cached: int, warned: bool
) -> None:
    answer = Reply((text("a"), text("b"), text("c", "length"), usage(3, 7, cached), DONE))
    asked = ["--out", str(tmp_path / "run"), "--prompt-salt", "mine"]
    result, _ = served(lambda body: answer, trace_file, *asked)
    assert f"prompts: salt mine; {100 * cached / 7:.1f}% of their tokens were" in result.stdout
    assert ("PROMPTS WERE CACHED: 85.7% of the prompt tokens" in result.stdout) == warned
    run = load_run(tmp_path / "run")
    assert run.meta["prompt_salt"] == "mine"
    assert run.extra["prompt_cache"]["cached_share"] == cached / 7


TURNS = count()


def half(body: dict[str, object]) -> Reply:
    """Every second request fails."""
    return stream_of(3) if next(TURNS) % 2 else Reply((b"boom",), 500)


@pytest.mark.parametrize(
    ("conditions", "code"), [((), 1), (("failed>49%",), 1), (("failed>50%", "e2e_p99>9s"), 0)]
)
def test_failures_above_a_limit_fail_the_command(
    trace_file: Path, tmp_path: Path, conditions: tuple[str, ...], code: int
) -> None:
    asked = [part for condition in conditions for part in ("--fail-if", condition)]
    result, _ = served(half, trace_file, "--json", "--out", str(tmp_path / "run"), *asked)
    assert result.exit_code == code, result.output
    findings = json.loads(result.stdout)["fail_if"]
    assert [finding["condition"] for finding in findings] == [*(conditions or ["failed>10%"])]
    assert findings[0]["value"] == 0.5
    assert [finding["failed"] for finding in findings] == [bool(code), False][: len(findings)]
    said = "servetwin: failed 50 % (limit "
    assert (said in result.stderr.splitlines()[-1]) == bool(code)


def test_a_condition_that_cannot_be_read_sends_nothing(trace_file: Path, tmp_path: Path) -> None:
    result, server = served(half, trace_file, "--fail-if", "ttft_p99>500")
    assert isinstance(result.exception, LoadTestError)
    assert not server.arrivals


def test_json_is_one_object(trace_file: Path, tmp_path: Path) -> None:
    result, _ = served(
        lambda body: stream_of(3), trace_file, "--json", "--out", str(tmp_path / "run")
    )
    answer = json.loads(result.stdout)
    assert answer["requests"]["finished"] == 4
    assert answer["delivered"]["failures"] == {}
    assert answer["run"] == str(tmp_path / "run")


def test_the_default_folder_is_named_by_the_time(
    trace_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result, _ = served(lambda body: stream_of(3), trace_file)
    assert result.exit_code == 0, result.output
    (folder,) = (tmp_path / "runs").iterdir()
    assert time.strptime(folder.name, "loadtest-%Y%m%d-%H%M%S")
    assert (folder / "summary.json").exists()


def test_the_trace_is_shaped_before_it_is_sent(trace_file: Path, tmp_path: Path) -> None:
    shape = ["--limit", "2", "--output-scale", "3", "--rate", "40", "--no-force-length"]
    _, server = served(
        lambda body: stream_of(9), trace_file, *shape, "--out", str(tmp_path / "run")
    )
    assert [arrival.body["max_tokens"] for arrival in server.arrivals] == [9, 9]
    assert all("min_tokens" not in arrival.body for arrival in server.arrivals)
    assert load_run(tmp_path / "run").scenario["rate_per_s"] == pytest.approx(40)


def test_exit_code_1_when_nothing_finished(trace_file: Path, tmp_path: Path) -> None:
    result, _ = served(
        lambda body: Reply((b"boom",), 500), trace_file, "--out", str(tmp_path / "run")
    )
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "servetwin: no request finished: HTTP 500: boom"
    assert load_run(tmp_path / "run").requests["error"].tolist() == ["http_5xx"] * 4


def test_exit_code_1_when_the_endpoint_dies(tmp_path: Path) -> None:
    requests = tuple(Request(f"r{index}", index * 0.03, 7, 3) for index in range(40))
    write_trace(Trace(requests, "forty.jsonl"), tmp_path / "forty.jsonl")
    with ScriptedServer(lambda body: stream_of(3)).running() as server:

        def dying(body: dict[str, object]) -> Reply:
            server.stop_listening()
            return stream_of(3)

        server.script = dying
        asked = ["--give-up-after", "300ms", "--out", str(tmp_path / "run")]
        result = invoke(server.url, tmp_path / "forty.jsonl", *asked)
    run = load_run(tmp_path / "run")
    finished = int((run.requests["status"] == "finished").sum())
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        "servetwin: stopped: the endpoint was gone (no connection for 0.3 s); "
        f"{finished} of 40 requests kept in {tmp_path / 'run'}"
    )
    assert finished >= 1


def as_prediction(run: Run, folder: Path, factor: float = 1.0) -> Path:
    """A run in the guise of a prediction, its output throughput off by a factor."""
    prediction = Run("simulation", run.requests.copy(), run.steps, run.scenario)
    prediction.requests["output_tokens"] = (run.requests["output_tokens"] * factor).astype(int)
    return prediction.save(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("requests", "factor", "code", "said"),
    [
        (40, 1.0, 0, None),
        (40, 3.0, 1, "the prediction is refuted"),
        (4, 3.0, 3, "this load test cannot tell whether the prediction holds"),
    ],
    ids=["same throughput", "three times as much", "too few"],
)
def test_against_a_prediction(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    requests: int,
    factor: float,
    code: int,
    said: str | None,
) -> None:
    """Steps of the length of the server's pauses predict it; tripled throughput is refuted.

    A tripled throughput cannot be in the noise of one run, whatever the machine does.

    Eight seconds of arrivals: a last answer that a busy machine delays is a small part of them.
    A client that is late by milliseconds, which is a doubt of its own, has tests of its own.
    """
    monkeypatch.setattr(records, "LATE_S", 1.0)
    monkeypatch.setattr(records, "LATE_LEAST_S", 1.0)
    reply = stream_of(3, pause_s=0.1)
    made = Trace(
        tuple(Request(f"r{index}", index * 0.2, 7, 3) for index in range(requests)), "made.jsonl"
    )
    write_trace(made, tmp_path / "made.jsonl")
    steps = LinearStepTime.of({"constant": 0.1})
    prediction = as_prediction(
        simulate(made, build_scheduler(PolicyConfig()), steps), tmp_path / "predicted", factor
    )
    with ScriptedServer(lambda body: reply).running() as server:
        result = invoke(
            server.url, tmp_path / "made.jsonl", "--against", str(prediction),
            "--out", str(tmp_path / "run"), "--json",
        )  # fmt: skip
    comparison = json.loads(result.stdout)["comparison"]
    throughput = comparison["metrics"][0]
    assert throughput["metric"] == "output_throughput_tokens_per_s"
    assert throughput["outcome"] == {0: "holds", 1: "refuted", 3: "cannot tell"}[code]
    assert result.exit_code == EXIT_CODES[comparison["outcome"]]
    if said:  # an equal prediction may yet be undecided on a busy machine
        assert result.exit_code == code
        assert result.stderr.splitlines()[-1] == f"servetwin: {said}"


def test_a_prediction_for_another_load_is_refused_before_anything_is_sent(
    trace_file: Path, tmp_path: Path
) -> None:
    with ScriptedServer(lambda body: stream_of(3)).running() as server:
        requests = (Request(f"r{index}", index * 0.01, 7, 3) for index in range(4))
        first = run_load_test(probe(server.url), Trace(tuple(requests), "four.jsonl"))
        sent = len(server.arrivals)
        prediction = as_prediction(first, tmp_path / "predicted")
        result = invoke(server.url, trace_file, "--against", str(prediction))
        assert len(server.arrivals) == sent
    assert isinstance(result.exception, LoadTestError)
    assert "request 'r1' of the trace has another arrival" in str(result.exception)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (["--slo", "ttft=500"], LoadTestError, "--slo 'ttft=500'"),
        (
            ["--rate", "2", "--rate-scale", "2"],
            LoadTestError,
            "--rate and --rate-scale exclude",
        ),
        (["--model", "gpt"], LoadTestError, "--model gpt: not served"),
        (["--api", "chat", "--prompt", "ids"], LoadTestError, "--prompt ids"),
        (["--out", "{trace}/below"], ClaimError, "cannot be made (Not a directory)"),
    ],
)
def test_bad_input_is_one_line_and_sends_nothing(
    trace_file: Path, options: list[str], error: type[Exception], message: str
) -> None:
    result, server = served(
        lambda body: stream_of(3), trace_file, *(o.format(trace=trace_file) for o in options)
    )
    assert isinstance(result.exception, error)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
    assert server.arrivals == []


def test_a_malformed_trace_is_found_before_the_endpoint_is_asked(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"request_id": "a", "arrival_s": 0, "prompt_tokens": -1, "output_tokens": 3}\n')
    result = invoke("http://127.0.0.1:9", bad)
    assert isinstance(result.exception, TraceError)
    assert str(result.exception).startswith(f"{bad}:1: field 'prompt_tokens'")


def start(url: str, trace: Path, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "servetwin", "loadtest", url, "--trace", str(trace)]
    return subprocess.Popen(
        [*command, "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "OPENAI_API_KEY": KEY},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_unreachable_endpoint_in_a_process(trace_file: Path, tmp_path: Path) -> None:
    with ScriptedServer(lambda body: Reply()).running() as server:
        url = server.url
    process = start(url, trace_file, tmp_path / "run")
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (1, "")
    assert stderr.startswith(f"servetwin: GET {url}/v1/models: ")
    assert stderr.count("\n") == 1


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    """Two are whole, the third is in flight when it comes, the fourth is due in an hour."""
    requests = [Request(f"r{i}", at_s, 7, 3) for i, at_s in enumerate((0.0, 0.1, 0.2, 3600.0))]
    write_trace(Trace(tuple(requests), "four.jsonl"), tmp_path / "four.jsonl")
    replies = iter([stream_of(3), stream_of(3), Reply((text("a"), 600.0))])
    out = tmp_path / "run"
    with ScriptedServer(lambda body: next(replies)).running() as server:
        process = start(server.url, tmp_path / "four.jsonl", out)
        deadline = time.monotonic() + 60
        while len(server.arrivals) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert stderr.splitlines()[-1] == f"servetwin: interrupted; 2 of 4 requests kept in {out}"
    run = load_run(out)
    assert run.requests["status"].tolist() == ["finished", "finished", "cancelled", "cancelled"]
    assert run.requests["output_tokens"].tolist() == [3, 3, 1, 0]
    assert run.requests["sent_s"].isna().tolist() == [False, False, False, True]
    assert run.extra["delivered"]["interrupted"] is True
    assert server.arrivals[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in stdout + stderr
    assert all(KEY.encode() not in path.read_bytes() for path in out.iterdir())
