"""The served engine from end to end: the real model, its process, its start and its end."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from servetwin.engine.core.step_log import read_arrivals, read_step_log
from servetwin.engine.http.engine_server import EngineServer
from servetwin.engine.http.http_settings import HttpSettings
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError
from tests.support.live_server import wait_until
from tests.support.paths import ROOT

pytest.importorskip("torch")

POLICIES = PolicyConfig(kv_tokens=4096, max_model_len=2048, max_seqs=4)
TINY = ServeOptions(model="tiny", policies=POLICIES)
LONG = {"prompt": [300] * 20, "max_tokens": 1200, "ignore_eos": True}


@contextmanager
def long_stream(url: str) -> Iterator[Iterator[str]]:
    """A stream of over a second that has begun; its remaining events."""
    with (
        httpx.Client(trust_env=False, timeout=30) as client,
        client.stream("POST", f"{url}/v1/completions", json=LONG | {"stream": True}) as response,
    ):
        lines = (line.removeprefix("data: ") for line in response.iter_lines() if line)
        next(lines)
        yield lines


def get(url: str) -> httpx.Response:
    with httpx.Client(trust_env=False, timeout=30) as client:
        return client.get(url)


def post(url: str, body: dict[str, Any]) -> httpx.Response:
    with httpx.Client(trust_env=False, timeout=30) as client:
        return client.post(url, json=body)


@pytest.mark.slow
def test_sigterm_lets_running_requests_finish_and_refuses_new_ones(tmp_path: Path) -> None:
    # A busy machine takes longer than the usual time for what runs.
    options = replace(
        TINY,
        step_log=tmp_path / "steps.jsonl",
        http=HttpSettings(port=0, drain_s=60.0, max_restarts=0),
    )
    with EngineServer(options) as server:
        facts = get(f"{server.url}/servetwin/engine").json()
        with long_stream(server.url) as events:
            server.process.send_signal(signal.SIGTERM)
            wait_for_503(f"{server.url}/health")
            refused = post(f"{server.url}/v1/completions", LONG)
            rest = list(events)
        assert server.process.wait(20) == 0
    assert refused.status_code == 503
    assert rest.pop() == "[DONE]"
    chunks = [json.loads(data) for data in rest]
    assert len(chunks) == 1199
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    header, records = read_step_log(tmp_path / "steps.jsonl")
    assert header == facts
    assert len(records) == 1200
    assert sum(tokens for record in records for _, _, tokens, _ in record.entries) == 20 + 1199
    (arrival,) = read_arrivals(tmp_path / "steps.jsonl")
    assert (arrival.request_id, arrival.prompt_tokens) == (chunks[0]["id"], 20)


def wait_for_503(url: str) -> None:
    with httpx.Client(trust_env=False, timeout=30) as client:
        wait_until(lambda: client.get(url).status_code == 503)


@pytest.mark.slow
def test_a_second_signal_ends_streams_with_an_error() -> None:
    with EngineServer(TINY) as server, long_stream(server.url) as events:
        server.process.send_signal(signal.SIGINT)
        wait_for_503(f"{server.url}/health")
        server.process.send_signal(signal.SIGINT)
        *_, last = events
        assert json.loads(last)["error"]["message"] == "the server is shutting down"
        assert server.process.wait(20) == 0
        assert server.last_error() == "the engine ended with code 0"  # nothing on stderr


@pytest.mark.slow
def test_a_second_signal_cuts_off_a_client_that_does_not_read() -> None:
    with EngineServer(TINY) as server:
        url = httpx.URL(server.url)
        with socket.create_connection((url.host, url.port or 80)) as deaf:
            body = json.dumps(LONG | {"stream": True, "max_tokens": 2000})
            head = f"POST /v1/completions HTTP/1.1\r\nHost: [::1]\r\nContent-Length: {len(body)}"
            deaf.sendall(f"{head}\r\n\r\n{body}".encode())
            deaf.recv(1)
            server.process.send_signal(signal.SIGTERM)
            wait_for_503(f"{server.url}/health")
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(20) == 0
        assert server.last_error() == "the engine ended with code 0"


@pytest.mark.slow
def test_a_killed_core_is_started_again_and_its_log_goes_on(tmp_path: Path) -> None:
    options = replace(
        TINY, http=HttpSettings(port=0, max_restarts=1), step_log=tmp_path / "steps.jsonl"
    )
    with EngineServer(options) as server:
        with long_stream(server.url) as events:
            first_pid = core_pid(server.url)
            os.kill(first_pid, signal.SIGKILL)
            *_, last = events
        assert "the engine core has died" in json.loads(last)["error"]["message"]
        wait_until(lambda: get(f"{server.url}/health").json()["status"] == "starting")
        message = get(f"{server.url}/health").json()["error"]["message"]
        assert message.startswith("the engine core is starting; it is being started again (the")
        assert get(f"{server.url}/servetwin/engine").status_code == 503
        assert get(f"{server.url}/metrics").status_code == 200
        assert get(f"{server.url}/v1/models").json()["data"][0]["id"] == "tiny"
        wait_until(lambda: get(f"{server.url}/health").json()["status"] == "ready", 90)
        assert post(f"{server.url}/v1/completions", {"prompt": "a"}).status_code == 200
        assert core_pid(server.url) != first_pid
        os.kill(core_pid(server.url), signal.SIGKILL)
        assert server.process.wait(20) == 2
        assert server.last_error().endswith(
            "(exit code -9); it was started again 1 times within 300 s, and --max-restarts allows "
            "no more"
        )
    header, records = read_step_log(tmp_path / "steps.jsonl")
    assert header["process_id"] == first_pid
    assert [record.step for record in records] == list(range(len(records)))
    assert sorted(record.now_s for record in records) == [record.now_s for record in records]
    assert records[-1].entries[0][0].startswith("cmpl-2")


@pytest.mark.slow
def test_a_core_that_hangs_is_stalled_until_it_moves() -> None:
    with EngineServer(
        replace(TINY, http=HttpSettings(port=0, step_limit_s=0.5, max_restarts=0))
    ) as server:
        with long_stream(server.url) as events:
            pid = core_pid(server.url)
            os.kill(pid, signal.SIGSTOP)
            *_, last = events
        message = "the engine core has not ended a step for 0.5 s (--step-limit)"
        assert json.loads(last)["error"]["message"] == message
        answer = get(f"{server.url}/health")
        assert (answer.status_code, answer.json()["status"]) == (503, "stalled")
        assert post(f"{server.url}/v1/completions", LONG).status_code == 503
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: get(f"{server.url}/health").status_code == 200)
        assert post(f"{server.url}/v1/completions", {"prompt": "a"}).status_code == 200
        assert (
            'vllm:kv_cache_usage_perc{model_name="tiny"} 0.0' in get(f"{server.url}/metrics").text
        )


def core_pid(url: str) -> int:
    return int(get(f"{url}/servetwin/engine").json()["process_id"])


@pytest.mark.slow
def test_grace_is_limited() -> None:
    with (
        EngineServer(
            replace(TINY, http=HttpSettings(port=0, drain_s=0.0, max_restarts=0))
        ) as server,
        long_stream(server.url) as events,
    ):
        server.process.send_signal(signal.SIGTERM)
        *_, last = events
        assert json.loads(last)["error"]["message"] == "the server is shutting down"
        assert server.process.wait(20) == 0


@pytest.mark.slow
def test_a_killed_core_ends_the_server_with_an_error() -> None:
    with EngineServer(TINY) as server, long_stream(server.url) as events:
        os.kill(core_pid(server.url), signal.SIGKILL)
        *_, last = events
        assert "the engine core has died" in json.loads(last)["error"]["message"]
        assert get(f"{server.url}/health").status_code == 503
        assert server.process.wait(20) == 2
        assert server.last_error() == (
            "the engine core has died: its process is gone (exit code -9)"
        )


@pytest.mark.slow
def test_a_killed_server_takes_its_core_along() -> None:
    with EngineServer(TINY) as server:
        pid = core_pid(server.url)
        assert is_alive(pid)
        server.process.kill()
        server.process.wait()
        wait_until(lambda: not is_alive(pid))
        assert not is_alive(pid)


@pytest.fixture
def few_files() -> Iterator[None]:
    """Allow what this process starts 256 files at once, unless it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.usefixtures("few_files")
def test_a_server_has_all_files_of_the_system_and_ends_when_its_parent_is_gone() -> None:
    with EngineServer(TINY) as server:
        limits = Path(f"/proc/{server.process.pid}/limits").read_text()
        (line,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
        assert line.split()[3] == line.split()[4]
        assert server.process.stdin is not None
        server.process.stdin.close()
        assert server.process.wait(20) == 0


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "bas"}, "unknown model 'bas'; did you mean 'base'?"),
        (
            {"http": HttpSettings("256.0.0.1")},
            "cannot listen on 256.0.0.1: Name or service not known",
        ),
    ],
)
def test_a_server_that_cannot_start_says_why(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError) as caught, EngineServer(replace(TINY, **changes)):
        pass
    assert str(caught.value).startswith(message)


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = replace(TINY, http=HttpSettings(port=port, max_restarts=0))
        with pytest.raises(EngineError) as caught, EngineServer(options):
            pass
    assert str(caught.value) == f"cannot listen on 127.0.0.1:{port}: Address already in use"


def test_the_http_process_needs_no_torch() -> None:
    imports = "import sys, engine.http.serving, engine.core.core_process"
    code = f"{imports}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
def test_the_core_starts_without_the_compiler_of_torch() -> None:
    """Its import takes longer than all others together."""
    imports = "import sys, engine.core.build"
    code = f"{imports}; sys.exit(bool({{'torch._dynamo', 'triton'}} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
