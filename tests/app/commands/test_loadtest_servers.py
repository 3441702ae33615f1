"""``servetwin loadtest`` against servers of several kinds: what it says, and no secret of it."""

import base64
import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from servetwin.app.cli import app
from servetwin.sim.records.run import load_run
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.command import servetwin
from tests.support.dialect_servers import (
    TWO_REQUESTS,
    Kind,
    kinds,
    models,
    openai_answer,
    running,
    tgi,
)
from tests.support.loadtest_server import DONE, Reply, ScriptedServer, event, text
from tests.support.mock_load import trace_of

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


KEY = "sk-Live/9a+b~c&d<e>0123456789zyx"
OTHERS = {"X-Tenant": "tenant-7f3a9c51", "X-Trace": "plain words of a team"}
VALUES = (KEY, *OTHERS.values())


def forms(secret: str) -> list[str]:
    """How a server or a page may write it, whole and cut."""
    encoded = base64.b64encode(secret.encode()).decode()
    half = len(secret) // 2
    return [
        secret, quote(secret), quote(secret, safe=""), quote_plus(secret), html.escape(secret),
        encoded[:-4], base64.urlsafe_b64encode(secret.encode()).decode()[:-4],
        secret[:half], secret[half:], secret[:8], secret[-8:],
    ]  # fmt: skip


def echo(secret: str) -> list[Reply]:
    """Answers that repeat a secret wherever an answer has room for it."""
    every = " | ".join(forms(secret))
    ok = Reply((event(id=f"cmpl-{secret}", choices=[{"text": "a"}]), text("b", "length"), DONE))
    return [
        ok,
        Reply((json.dumps({"error": {"message": f"bad key {every}"}}).encode(),), 401),
        Reply((f"<p>{html.escape(secret)}</p>{every}".encode(),), 500),
        Reply((b"",), 307, {"Location": f"/login/{quote(secret)}?key={quote_plus(secret)}"}),
        Reply((event(error=f"no room for {every}"),)),
        Reply((f"data: {every}\n\n".encode(),)),
        Reply((f"<html>{every}".encode(),)),
        Reply((b"a",), 200, {"Transfer-Encoding": secret.replace(" ", "")}),
    ]


def leaks(data: str) -> list[str]:
    return [form for value in VALUES for form in forms(value) if form.lower() in data.lower()]


@pytest.mark.parametrize("more", [("--json",), ("--processes", "2")])
def test_no_sink_has_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TENANT", OTHERS["X-Tenant"])
    (tmp_path / "headers.txt").write_text(f"X-Trace: {OTHERS['X-Trace']}\n")
    replies = iter([reply for value in VALUES for reply in echo(value)])
    write_trace(trace_of(*(0.02 * n for n in range(24))), tmp_path / "t.jsonl")
    out = tmp_path / "out"
    out.mkdir()
    with ScriptedServer(lambda body: next(replies)).running() as server:
        done = servetwin(
            "loadtest", server.url, "--trace", tmp_path / "t.jsonl", "--out", out / "run",
            "--header", f"Authorization: Bearer {KEY}", "--header-env", "X-Tenant=TENANT",
            "--header-file", tmp_path / "headers.txt",
            "--live", out / "live.jsonl", *more,
        )  # fmt: skip
    assert len(server.arrivals) == 24
    for arrival in server.arrivals:
        assert arrival.headers["authorization"] == f"Bearer {KEY}"
        assert {name: arrival.headers[name.lower()] for name in OTHERS} == OTHERS
    assert "***" in done.out
    assert leaks(done.out + done.err) == []
    files = [path for path in out.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".html", ".jsonl", ".json", ".yaml", ".parquet"}
    for path in files:
        assert leaks(path.read_bytes().decode(errors="replace")) == [], path
    assert leaks(pd.read_parquet(out / "run" / "requests.parquet").to_json()) == []


def test_an_error_of_the_command_has_none(tmp_path: Path) -> None:
    """The list of models is refused, elsewhere, or names the key."""
    write_trace(trace_of(0.0), tmp_path / "t.jsonl")
    with ScriptedServer(lambda body: Reply()).running() as server:
        done = servetwin(
            "loadtest", f"{server.url}/{quote(KEY)}", "--trace", tmp_path / "t.jsonl",
            "--out", tmp_path / "run", "--header", f"Authorization: Bearer {KEY}",
            "--model", KEY,
        )  # fmt: skip
    assert done.code == 2
    assert "--model ***" in done.err
    assert leaks(done.out + done.err) == []


def test_a_header_without_quotes_is_not_repeated() -> None:
    done = servetwin(
        "loadtest", "http://127.0.0.1:1", "--concurrency", 1, "--header", "X-Key:", KEY
    )  # fmt: skip
    assert done.code == 2
    assert "a header with spaces needs quotes" in done.err
    assert leaks(done.out + done.err) == []
