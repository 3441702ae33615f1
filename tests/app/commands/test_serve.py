"""``servetwin serve --simulated``: the simulator in real time behind the API."""

import asyncio
import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from servetwin.app.serving.engines import engine_at
from servetwin.engine.core.step_log import read_arrivals, read_step_log
from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.run.client import run_load_test
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.decision_check import check_decisions
from servetwin.sim.step_times.profile import load_profile
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.command import refused, servetwin
from tests.support.live_server import wait_until
from tests.support.paths import ROOT

pytest.importorskip("uvicorn")


SHEET = ["--model", "llama-3-8b", "--hardware", "h100"]


@contextmanager
def serving(*options: object) -> Iterator[str]:
    """``servetwin serve`` as people start it, for as long as the block lasts; its URL."""
    command = [
        sys.executable,
        "-m",
        "servetwin.app.cli",
        "serve",
        "--port",
        "0",
        *map(str, options),
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("serving a simulated "), process.communicate()[1]
            yield line.split(" at ")[1].split()[0].removesuffix("/v1")
        finally:
            process.terminate()
            output, errors = process.communicate(timeout=20)
            assert (process.returncode, output) == (0, "")
            assert "Traceback" not in errors


@pytest.mark.slow
def test_a_load_test_against_it_and_law_5_on_its_step_log(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    rng = np.random.default_rng(3)
    arrivals_s = np.cumsum(rng.exponential(0.03, 20)).tolist()
    lengths = zip(rng.integers(17, 60, 20).tolist(), rng.integers(1, 12, 20).tolist(), strict=True)
    requests = [
        Request(f"q{i}", at_s, prompt, output, (i % 3,), 16)
        for i, (at_s, (prompt, output)) in enumerate(zip(arrivals_s, lengths, strict=True))
    ]
    trace = Trace(tuple(requests), "made up")
    options = ("--simulated", "base-cpu", "--prefix-cache", "--max-seqs", 4, "--step-log", path)
    with serving(*options) as url:
        live = engine_at(url)  # what ``verify --url`` does
        assert live.step_log == path
        run = run_load_test(probe(url), trace)
        with httpx.Client(trust_env=False, timeout=10) as client:
            metrics = client.get(f"{url}/metrics").text
    assert Counter(run.requests["status"]) == {"finished": 20}
    assert run.requests["output_tokens"].tolist() == [r.output_tokens for r in trace]
    assert run.requests["prompt_tokens"].tolist() == [r.prompt_tokens for r in trace]
    assert f"{float(run.requests['output_tokens'].sum())}" in metrics

    header, log = read_step_log(path)
    config = PolicyConfig(**header["policies"])
    assert (config.max_seqs, config.prefix_cache) == (4, True)
    decision_check = check_decisions(read_arrivals(path), config, log)
    assert decision_check.identical
    assert decision_check.steps == len(log) > 20
    assert any(step.hits for step in log)
    assert any(step.waiting for step in log)


def test_chat_streams_stop_strings_refusals_and_cancellations() -> None:
    with (
        serving("--simulated", "base-cpu", "--max-model-len", 128, "--max-seqs", 2) as url,
        httpx.Client(trust_env=False, timeout=20, base_url=url) as client,
    ):
        body: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6}
        first = client.post("/v1/chat/completions", json=body).json()
        text = first["choices"][0]["message"]["content"]
        assert (first["usage"]["completion_tokens"], len(text.split())) == (6, 6)
        with client.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as answer:
            lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
        assert lines.pop() == "[DONE]"
        deltas = [json.loads(line)["choices"][0]["delta"]["content"] for line in lines]
        assert "".join(deltas) == text
        third = text.split()[2]
        stopped = client.post("/v1/chat/completions", json=body | {"stop": f" {third}"}).json()
        assert stopped["choices"][0]["finish_reason"] == "stop"
        assert stopped["choices"][0]["message"]["content"].split() == text.split()[:2]
        refusal = client.post("/v1/completions", json={"prompt": [300] * 120, "max_tokens": 20})
        assert refusal.status_code == 400
        assert refusal.json()["error"]["code"] == "context_length_exceeded"
        asyncio.run(_leave_early(url))
        again = client.post("/v1/chat/completions", json=body).json()
        assert again["choices"][0]["message"]["content"] == text
        aborted = 'request_success_total{finished_reason="abort",model_name="base"} 1.0'
        wait_until(lambda: aborted in client.get("/metrics").text)


async def _leave_early(url: str) -> None:
    """Ask for many tokens, and go after the first."""
    body = {"prompt": [300], "max_tokens": 120, "stream": True}
    async with (
        httpx.AsyncClient(trust_env=False, base_url=url) as client,
        client.stream("POST", "/v1/completions", json=body) as answer,
    ):
        async for _ in answer.aiter_lines():
            break


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--simulated", "base-cpuu"], "no profile 'base-cpuu'; did you mean 'base-cpu'?"),
        (["--simulated", "gone.json"], "gone.json: the profile cannot be read"),
        (["--simulated", "base-cpu", "--model", "tiny"], "--model: not with --simulated"),
        (["--model", "base", "--hardware", "h1000"], "no device 'h1000'; did you mean 'h100'?"),
        (["--hardware", "h100"], "--gpu: needs --model"),
        (["--technique", "int4"], "technique: unknown technique 'int4'"),
        (
            ["--technique", "cascade:small=tiny"],
            "technique cascade: the bundled engine cannot run it",
        ),
        (
            ["--simulated", "base-cpu", "--technique", "prefix-cache"],
            "--technique: not with --simulated",
        ),
        (["--simulated", "base-cpu", "--threads", "2"], "--threads: says how torch computes"),
        (["--simulated", "base-cpu", "--set", "draft_rows=2"], "draft_rows 2 cannot"),
        (
            ["--simulated", "base-cpu", "--batching", "statik"],
            "batching: unknown scheduler 'statik'",
        ),
        (["--simulated", "base-cpu", "--set", "victim=x"], "victim: 'x' is not possible"),
        (["--preset", "distserve"], "--preset distserve: several servers (prefill_replicas 1, dec"),
        (
            ["--simulated", "base-cpu", "--preset", "splitwise"],
            "--preset splitwise: several servers (prefill_replicas 1, decode_replicas 1",
        ),
        (
            [*SHEET, "--technique", "prefill-decode-split"],
            "technique prefill-decode-split cannot be served: it needs several servers",
        ),
        (
            [*SHEET, "--technique", "fp8", "--technique", "awq"],
            "techniques fp8 and awq exclude each other",
        ),
        (["--efficiency", "memory=0.7"], "--efficiency: needs --model and --gpu"),
        ([*SHEET, "--without", "kv-cahce"], "technique: unknown technique 'kv-cahce'; did you"),
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str) -> None:
    assert refused("serve", *options).startswith(f"servetwin: {message}")


def test_a_layout_that_was_not_measured(tmp_path: Path) -> None:
    profile = load_profile("base-cpu")
    paged = profile.model_copy(update={"layouts": {"paged": profile.layouts["paged"]}})
    paged.save(tmp_path / "paged.json")
    line = refused("serve", "--simulated", tmp_path / "paged.json", "--kv", "contiguous")
    assert line == (
        "servetwin: profile base-cpu: contiguous KV memory was not measured, only paged; calibrate "
        "that layout"
    )


def test_techniques_that_are_on_already_and_those_taken_away_are_said() -> None:
    toggles = ("--technique", "flash-decoding", "--without", "kv-cache")
    done = servetwin("serve", *SHEET, *toggles, "--step-log", "/nowhere/x", "--port", 0)
    first, *_ = done.err.splitlines()
    assert first == (
        "note: flash-decoding is on here already; --without flash-decoding takes it away"
    )


def test_a_profile_behind_a_preset_of_eager_kernels_keeps_its_step_times_and_says_so() -> None:
    served = ("--simulated", "base-cpu", "--preset", "hf-transformers")
    done = servetwin("serve", *served, "--step-log", "/nowhere/x", "--port", 0)
    assert done.err.startswith("note: preset hf-transformers runs eager kernels"), done.err


@pytest.mark.slow
@pytest.mark.parametrize("server", [(), ("--simulated", "base-cpu")])
def test_a_setting_that_nothing_reads_is_refused(server: tuple[str, ...]) -> None:
    done = servetwin("serve", *server, "--set", "padding=off", "--step-log", "/nowhere/x")
    assert done.code == 2
    assert done.err.startswith("servetwin: padding: false would change nothing: only batching: ")


@pytest.mark.parametrize("wrong", ["port", "step log"])
def test_what_only_the_server_can_find_out(wrong: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ["--port", port] if wrong == "port" else ["--port", 0, "--step-log", "/nowhere/x"]
        done = servetwin("serve", "--simulated", "base-cpu", *options)
    expected = {
        "port": f"servetwin: cannot listen on 127.0.0.1:{port}: Address already in use",
        "step log": "servetwin: step log /nowhere/x: No such file or directory",
    }
    assert (done.code, done.out) == (2, "")
    starting, error = done.err.splitlines()
    assert starting == "starting a simulated base with continuous+paged"
    assert error == expected[wrong]
