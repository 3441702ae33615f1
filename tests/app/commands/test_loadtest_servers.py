"""``servetwin loadtest`` against servers of several kinds: what it says, sends and stores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from servetwin.app.cli import app
from servetwin.sim.records.run import load_run
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.dialect_servers import (
    TWO_REQUESTS,
    Kind,
    kinds,
    models,
    openai_answer,
    running,
    tgi,
)

SECRET = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and headers that a command sets in the environment end with the test."""
    for name in ("OPENAI_API_KEY", "SERVETWIN_API_KEY_ENV", "SERVETWIN_HEADERS"):
        monkeypatch.setenv(name, "")


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    write_trace(TWO_REQUESTS, tmp_path / "two.jsonl")
    return tmp_path / "two.jsonl"


def invoke(url: str, trace: Path, *options: str) -> Result:
    out = str(trace.parent / "run")
    return CliRunner().invoke(app, ["loadtest", url, "--trace", str(trace), "--out", out, *options])


def test_the_command_says_how_it_asks(trace_file: Path) -> None:
    kind = kinds()["sglang"]
    with running(kind) as url:
        result = invoke(url, trace_file)
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[0] == (
        f"endpoint: {url}/generate, dialect sglang (native), model m, prompts as token ids, "
        "output length forced"
    )
    assert [path for path, _ in kind.asked] == ["/generate"] * 2


def test_keys_and_headers_are_sent_and_never_kept(
    trace_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", SECRET)
    kind = kinds()["vllm"]
    with running(kind) as url:
        result = invoke(
            url, trace_file, "--api-key-env", "MY_KEY",
            "--header", "X-Team: blue", "--header", f"X-Api-Key: {SECRET}2",
        )  # fmt: skip
    assert result.exit_code == 0, result.output
    for headers in kind.headers:
        assert headers["authorization"] == f"Bearer {SECRET}"
        assert (headers["x-team"], headers["x-api-key"]) == ("blue", f"{SECRET}2")
    folder = trace_file.parent / "run"
    stored = load_run(folder).scenario["endpoint"]["headers"]
    assert stored == {"X-Team": "***", "X-Api-Key": "***"}
    assert SECRET not in result.output + result.stderr
    assert all(SECRET.encode() not in path.read_bytes() for path in folder.iterdir())


def test_a_header_may_be_the_authorization(trace_file: Path) -> None:
    kind = kinds()["vllm"]
    with running(kind) as url:
        invoke(url, trace_file, "--header", f"authorization: Bearer {SECRET}")
    assert [headers["authorization"] for headers in kind.headers] == [f"Bearer {SECRET}"] * 2


def test_a_secret_that_the_server_repeats_is_hidden(trace_file: Path) -> None:
    def repeating(body: Mapping[str, Any]) -> list[bytes]:
        return [f'data: {{"error": "bad token {SECRET}"}}\n\n'.encode()]

    with running(Kind(models("us"), {"/v1/completions": repeating})) as url:
        result = invoke(url, trace_file, "--header", f"Authorization: Bearer {SECRET}")
    assert result.exit_code == 1
    assert "sse_error: bad token ***" in result.stdout
    assert SECRET not in result.output + result.stderr


@pytest.mark.parametrize(("choice", "sent"), [("drop", [3]), ("clip", [5, 3])])
def test_too_long_requests_of_the_command(trace_file: Path, choice: str, sent: list[int]) -> None:
    trace = Trace((Request("long", 0.0, 5000, 5), Request("r1", 0.02, 9, 3)), "two.jsonl")
    write_trace(trace, trace_file)
    kind = kinds()["vllm"]
    with running(kind) as url:
        refused = invoke(url, trace_file)
        assert isinstance(refused.exception, LoadTestError)
        assert "1 of 2 requests are longer" in str(refused.exception)
        assert not kind.asked
        result = invoke(url, trace_file, "--on-too-long", choice)
    assert result.exit_code == 0, result.output
    assert [body["max_tokens"] for _, body in kind.asked] == sent
    assert [len(body["prompt"]) for _, body in kind.asked] == [4091, 9][-len(sent) :]


def test_how_far_the_server_counts_otherwise_is_said(trace_file: Path) -> None:
    """A chat template of 11 tokens makes 7 and 9 into 18 and 20."""

    def template(body: Mapping[str, Any]) -> list[bytes]:
        content = body["messages"][0]["content"] + " t" * 11
        return openai_answer({**body, "messages": [{"content": content}]})

    with running(Kind(models("us"), {"/v1/chat/completions": template})) as url:
        result = invoke(url, trace_file, "--api", "chat")
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert "the server counts 38 prompt tokens where the trace has 16 (+137.5 %;" in said


def test_shorter_answers_are_counted_where_no_length_can_be_forced(trace_file: Path) -> None:
    kind = kinds()["tgi"]
    short = {"/generate_stream": lambda body: [tgi("a"), tgi("</s>", special=True, last=2)]}
    with running(Kind(kind.pages, short)) as url:
        result = invoke(url, trace_file)
    assert result.exit_code == 0, result.output
    assert "output length free" in result.stdout
    assert "  2 finished with fewer tokens than in the trace" in result.stdout.splitlines()


def test_a_web_page_instead_of_a_stream(trace_file: Path) -> None:
    page = {"/v1/completions": lambda body: [b"<!doctype html><title>Sign in</title>"]}
    with running(Kind(models("us"), page)) as url:
        result = invoke(url, trace_file)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        "servetwin: no request finished: a web page came instead of a stream; check the URL and "
        "proxies"
    )
