"""The form of requests to an endpoint, and what a probe finds out about it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from servetwin.app.reports.load_test import render_report
from servetwin.loadtest.dialects.dialect import Api
from servetwin.loadtest.endpoint import Endpoint, client_settings, probe
from servetwin.loadtest.http import transport as http_client
from servetwin.loadtest.options import LoadOptions
from servetwin.loadtest.run.client import run_load_test
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.generators.prompts import prompt_text
from servetwin.workloads.request import Request
from tests.support.certificates import own_certificate, server_side
from tests.support.dialect_servers import REQUEST, Kind, kinds, models, openai_answer, running
from tests.support.loadtest_server import DONE, MODELS, Reply, ScriptedServer, delta, stream_of
from tests.support.mock_load import trace_of
from tests.support.prompt_ids import prompt_token_ids

IDS, TEXT = prompt_token_ids(REQUEST, 1_000), prompt_text(REQUEST)
OPENAI = {
    "model": "m",
    "max_tokens": 5,
    "temperature": 0,
    "stream": True,
    "stream_options": {"include_usage": True},
}
FORCED = {"min_tokens": 5, "ignore_eos": True}
EACH = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
CHAT = {"messages": [{"role": "user", "content": TEXT}]}
ENDLESS = {"generation_config": '{"eos_token_id": -1}'}
LLAMACPP = {"n_predict": 5, "temperature": 0, "cache_prompt": True, "return_tokens": True}
BODIES: dict[tuple[str, Api, str, bool], dict[str, Any]] = {
    ("openai", "completions", "text", True): {**OPENAI, **FORCED, "prompt": TEXT},
    ("openai", "chat", "text", False): {**OPENAI, **CHAT},
    ("vllm", "completions", "ids", True): {**OPENAI, **FORCED, **EACH, "prompt": IDS},
    ("vllm", "chat", "text", True): {**OPENAI, **FORCED, **EACH, **CHAT},
    ("tensorrt-llm", "completions", "ids", False): {**OPENAI, **EACH, "prompt": IDS},
    ("mlc", "completions", "ids", True): {
        **OPENAI, "prompt": IDS, "debug_config": {"ignore_eos": True},
    },
    ("transformers", "completions", "text", True): {**OPENAI, **ENDLESS, "prompt": TEXT},
    ("transformers", "chat", "text", False): {**OPENAI, **CHAT},
    ("sglang", "native", "ids", True): {
        "input_ids": IDS,
        "sampling_params": {
            "temperature": 0, "max_new_tokens": 5, "min_new_tokens": 5, "ignore_eos": True,
        },
        "stream": True,
    },
    ("sglang", "native", "text", False): {
        "text": TEXT, "sampling_params": {"temperature": 0, "max_new_tokens": 5}, "stream": True,
    },
    ("sglang", "completions", "ids", True): {**OPENAI, **FORCED, "prompt": IDS},
    ("tgi", "native", "text", False): {
        "inputs": TEXT,
        "parameters": {"max_new_tokens": 5, "do_sample": False, "details": True},
    },
    ("llamacpp", "native", "ids", True): {
        **LLAMACPP, "prompt": IDS, "ignore_eos": True, "stream": True,
    },
    ("llamacpp", "native", "text", False): {**LLAMACPP, "prompt": TEXT, "stream": True},
    ("llamacpp", "completions", "ids", True): {**OPENAI, "prompt": IDS, "ignore_eos": True},
    ("triton", "native", "text", False): {
        "text_input": TEXT, "max_tokens": 5, "stream": True, "bad_words": "", "stop_words": "",
    },
    ("ollama", "native", "text", False): {
        "model": "m",
        "prompt": TEXT,
        "raw": True,
        "options": {"num_predict": 5, "temperature": 0},
        "stream": True,
    },
}  # fmt: skip


@pytest.mark.parametrize(("asked", "body"), BODIES.items(), ids=map(str, BODIES))
def test_bodies(asked: tuple[str, Api, Any, bool], body: dict[str, Any]) -> None:
    dialect, api, prompt, forced = asked
    endpoint = Endpoint("http://h/v1", "m", api, prompt, force_length=forced, dialect=dialect)
    assert json.loads(endpoint.body(REQUEST)) == body


def test_the_dialect_can_be_overridden() -> None:
    kind = kinds()["sglang"]
    with running(kind) as url:
        plain = probe(url, dialect="openai")
        assert (plain.dialect, plain.url) == ("openai", f"{url}/v1/completions")
        ollama = probe(url, dialect="ollama", model="m")
        assert ollama.url == f"{url}/api/generate"


def test_a_server_without_a_list_of_models_is_asked_for_the_one_named() -> None:
    kind = Kind(answers={"/v1/completions": openai_answer})
    with running(kind) as url:
        assert probe(url, dialect="openai", model="mine").model == "mine"
        with pytest.raises(LoadTestError, match=r"answered 404.*or name the model with --model"):
            probe(url, dialect="openai")


def test_a_model_that_is_loaded_on_demand_need_not_be_listed() -> None:
    with running(kinds()["transformers"]) as url:
        assert probe(url).model == "m"
        assert probe(url, model="/models/mine").model == "/models/mine"
    with running(kinds()["vllm"]) as url, pytest.raises(LoadTestError, match="it serves m"):
        probe(url, model="/models/mine")


def test_the_tag_of_a_model_may_be_left_out() -> None:
    with running(kinds()["ollama"]) as url:
        assert probe(url, model="m").model == "m:latest"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"dialect": "sglan"}, "--dialect sglan: unknown; did you mean 'sglang'?"),
        (
            {"dialect": "?"},
            "--dialect ?: unknown; there are openai, vllm, sglang, tgi, llamacpp, tensorrt-llm, "
            "triton, mlc, transformers, ollama",
        ),
        (
            {"api": "native"},
            "--api native: the dialect openai has completions or chat or embeddings",
        ),
        (
            {"dialect": "tgi", "prompt": "ids"},
            "--prompt ids: the dialect tgi takes text only",
        ),
        ({"dialect": "triton", "api": "chat"}, "--api chat: the dialect triton has native"),
    ],
)
def test_what_cannot_be_asked(asked: dict[str, Any], message: str) -> None:
    with running(Kind(models("us"))) as url, pytest.raises(LoadTestError) as caught:
        probe(url, **asked)
    assert str(caught.value) == message


NINE_TOKENS = Request("r0", 0.0, prompt_tokens=5, output_tokens=9)
COMPLETION_BODIES: list[tuple[Endpoint, dict[str, Any]]] = [
    (
        Endpoint("http://h/v1", "m", prompt="ids", vocab_size=1000),
        {
            "prompt": prompt_token_ids(NINE_TOKENS, 1000),
            "max_tokens": 9,
            "min_tokens": 9,
            "ignore_eos": True,
        },
    ),
    (
        Endpoint("http://h/v1", "m", force_length=False),
        {"prompt": prompt_text(NINE_TOKENS), "max_tokens": 9},
    ),
    (
        Endpoint("http://h/v1", "m", api="chat", force_length=False),
        {"messages": [{"role": "user", "content": prompt_text(NINE_TOKENS)}], "max_tokens": 9},
    ),
]


@pytest.mark.parametrize(("endpoint", "own"), COMPLETION_BODIES)
def test_bodies_of_the_default_dialect(endpoint: Endpoint, own: dict[str, Any]) -> None:
    common = {
        "model": "m",
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert json.loads(endpoint.body(NINE_TOKENS)) == {**common, **own}


def test_an_endpoint_takes_a_random_salt_for_a_load_unless_it_has_one() -> None:
    endpoint = Endpoint("http://host/v1", "m")
    first, second = endpoint.salted("load", 1), endpoint.salted("load", 1)
    assert first.salt != second.salt
    assert first.body(REQUEST) != second.body(REQUEST)
    assert first.salted() == first
    stated = replace(endpoint, salt="here")
    assert stated.salted("load", 1).salt == "here/load/1"
    assert stated.salted("load", 1) == stated.salted("load").salted(1)


def test_chat_goes_to_its_own_path() -> None:
    reply = Reply((delta(role="assistant"), delta(content="a"), delta("stop"), DONE))
    with ScriptedServer(lambda body: reply).running() as server:
        run = run_load_test(probe(server.url, api="chat"), trace_of(0.0))
    assert [arrival.path for arrival in server.arrivals] == ["/v1/chat/completions"]
    assert run.requests["status"].tolist() == ["finished"]


@pytest.mark.parametrize("shape", ["{}", "{}/", "{}/v1", "{}/v1/"])
def test_probe_finds_what_is_served(shape: str) -> None:
    with ScriptedServer(lambda body: Reply()).running() as server:
        bare = server.url.removeprefix("http://")
        found = [probe(shape.format(server.url)), probe(shape.format(bare))]
    expected = Endpoint(f"{server.url}/v1", "mock", "completions", "ids", 1000, 4096)
    assert found == [expected, expected]


@pytest.mark.parametrize(
    ("asked", "prompt"),
    [
        ({}, "ids"),
        ({"prompt": "text"}, "text"),
        ({"prompt": "ids"}, "ids"),
        ({"api": "chat"}, "text"),
        ({"api": "chat", "prompt": "text"}, "text"),
    ],
)
def test_what_prompts_are_made_of(asked: dict[str, Any], prompt: str) -> None:
    with ScriptedServer(lambda body: Reply()).running() as server:
        assert probe(server.url, **asked).prompt == prompt


LONG = f"http://{'a' * 64}.example"
TRY = "give the URL of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1"
ASKED = "GET http://h/v1/models"
PROBES: dict[str, tuple[int, Any, dict[str, Any], str]] = {
    "404": (
        404,
        {},
        {},
        f"{ASKED}: answered 404; {TRY}; without a list: --dialect openai --model NAME",
    ),
    "401": (401, {}, {}, f"{ASKED}: answered 401; set OPENAI_API_KEY to a key that it accepts"),
    "not JSON": (200, "hello", {}, f"{ASKED}: the answer is no list of models; {TRY}"),
    "a list": (200, [1], {}, f"{ASKED}: the answer is no list of models; {TRY}"),
    "data of a wrong kind": (
        200,
        {"data": 3},
        {},
        f"{ASKED}: the answer is no list of models; {TRY}",
    ),
    "no model": (200, {"data": []}, {}, f"{ASKED}: no model is served there"),
    "another model": (
        200,
        MODELS,
        {"model": "gpt"},
        "--model gpt: not served at http://h/v1; it serves mock",
    ),
    "ids for chat": (
        200,
        MODELS,
        {"api": "chat", "prompt": "ids"},
        "--prompt ids: the chat API takes text only; use --api completions",
    ),
}


@pytest.mark.parametrize(("status", "body", "asked", "message"), PROBES.values(), ids=PROBES)
def test_probe_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, status: int, body: Any, asked: dict[str, Any], message: str
) -> None:
    content = body if isinstance(body, str) else json.dumps(body)
    answer = httpx.Response(status, text=content)
    monkeypatch.setattr(httpx.Client, "get", lambda self, url: answer)
    with pytest.raises(LoadTestError) as caught:
        probe("http://h", **asked)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://h", f"'ftp://h' is not an http URL; {TRY}"),
        ("", f"'' is not an http URL; {TRY}"),
        (
            "http://user:sk-very-secret@h",
            "the URL must not hold a password; put the key into OPENAI_API_KEY",
        ),
        ("http://h:74016", "'http://h:74016': a port is from 1 to 65535"),
        ("http://h:0", "'http://h:0': a port is from 1 to 65535"),
        ("a..b", "'a..b': each part of a host has from 1 to 63 characters"),
        (LONG, f"{LONG!r}: each part of a host has from 1 to 63 characters"),
    ],
)
def test_bad_urls(url: str, message: str) -> None:
    for check in (probe, client_settings):
        with pytest.raises(LoadTestError) as caught:
            check(url)
        assert str(caught.value) == message


def test_nobody_listens() -> None:
    with ScriptedServer(lambda body: Reply()).running() as server:
        url = server.url
    with pytest.raises(LoadTestError) as caught:
        probe(url)
    assert str(caught.value) == (
        f"GET {url}/v1/models: [Errno 111] Connection refused; is the server running? {TRY}"
    )


pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
"""Of connections that a handshake ended, in Python's own event loop."""

NOTE = "note: the certificate of the server was not verified (--insecure)"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return own_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(autouse=True)
def no_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server(certificate: tuple[Path, Path]) -> Iterator[ScriptedServer]:
    scripted = ScriptedServer(lambda body: stream_of(3), tls=server_side(*certificate))
    with scripted.running() as running:
        yield running


def reported(server: ScriptedServer, *, insecure: bool = False, processes: int = 1) -> str:
    """The report of a load test of which every request finished."""
    endpoint = probe(server.url, insecure=insecure)
    run = run_load_test(endpoint, trace_of(0.0, 0.01), options=LoadOptions(processes=processes))
    assert run.requests["status"].tolist() == ["finished"] * 2
    assert run.scenario["endpoint"]["insecure"] is insecure
    return render_report(run)


def test_a_certificate_that_signed_itself_is_refused(server: ScriptedServer) -> None:
    with pytest.raises(LoadTestError, match=r"name its CA in SSL_CERT_FILE, or give --insecure$"):
        probe(server.url)


def test_an_authority_of_the_environment_counts_on_the_loopback(
    server: ScriptedServer, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    assert NOTE not in reported(server)


@pytest.mark.parametrize("processes", [1, 2])
def test_insecure_accepts_it_and_the_report_says_so(server: ScriptedServer, processes: int) -> None:
    assert NOTE in reported(server, insecure=True, processes=processes)


def test_the_transport_of_httpx_is_no_different(
    server: ScriptedServer, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "httpx_reason", lambda *_, **__: "a test")
    assert NOTE in reported(server, insecure=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    assert NOTE not in reported(server)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file or directory"), (b"no certificate", "NO_CERTIFICATE_OR_CRL_FOUND")],
)
def test_a_file_without_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, reason: str
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(LoadTestError) as caught:
        client_settings("https://localhost/v1")
    assert str(caught.value).startswith(
        f"SSL_CERT_FILE {file}: no certificates can be read there ("
    )
    assert reason in str(caught.value)
    assert str(caught.value).endswith("; name a file in PEM format")


def test_plain_http_on_the_loopback_loads_no_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httpx, "create_ssl_context", None)
    assert client_settings("http://127.0.0.1:8000/v1")["verify"] is False
