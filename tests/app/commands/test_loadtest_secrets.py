"""A secret goes through everything that a load test prints or writes, and is in none of it."""

import base64
import html
import json
from pathlib import Path
from urllib.parse import quote, quote_plus

import pandas as pd
import pytest

from servetwin.workloads.readers.native import write_trace
from tests.support.command import servetwin
from tests.support.loadtest_server import DONE, Reply, ScriptedServer, event, text
from tests.support.mock_load import trace_of

KEY = "sk-Live/9a+b~c&d<e>0123456789zyx"
OTHERS = {"X-Tenant": "tenant-7f3a9c51", "X-Trace": "plain words of a team"}
VALUES = (KEY, *OTHERS.values())


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers that a command sets in the environment end with the test."""
    for name in ("OPENAI_API_KEY", "SERVETWIN_API_KEY_ENV", "SERVETWIN_HEADERS"):
        monkeypatch.setenv(name, "")


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
            "--html", out / "report.html", "--live", out / "live.jsonl", *more,
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
