"""Every kind of server is recognised, and load-tested in its own dialect."""

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from servetwin.loadtest.dialects.dialect import Api
from servetwin.loadtest.dialects.server_probe import ServerProbe
from servetwin.loadtest.dialects.servers import DIALECTS, dialect_of
from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.http.exchange import Exchange
from servetwin.loadtest.run.client import LoadOptions, run_load_test
from servetwin.loadtest.stream.stream_reader import read_stream
from servetwin.loadtest.stream.whole_answer import WholeAnswerReader
from servetwin.workloads.errors import LoadTestError, Unreachable
from tests.support.dialect_servers import (
    CONTEXT,
    REQUEST,
    TRANSFORMERS_PATHS,
    TWO_REQUESTS,
    Kind,
    kinds,
    models,
    running,
    server_with,
)
from tests.support.paths import DOCS

FACTS: dict[str, tuple[Api, str, bool, int | None, str]] = {
    # API, prompt, length forced, context, path of the request
    "openai": ("completions", "text", True, None, "/v1/completions"),
    "vllm": ("completions", "ids", True, CONTEXT, "/v1/completions"),
    "sglang": ("native", "ids", True, CONTEXT, "/generate"),
    "tgi": ("native", "text", False, CONTEXT, "/generate_stream"),
    "llamacpp": ("native", "ids", True, CONTEXT, "/completion"),
    "tensorrt-llm": ("completions", "ids", True, None, "/v1/completions"),
    "triton": ("native", "text", False, None, "/v2/models/ensemble/generate_stream"),
    "mlc": ("completions", "ids", True, None, "/v1/completions"),
    "transformers": ("completions", "text", True, None, "/v1/completions"),
    "ollama": ("native", "text", False, CONTEXT, "/api/generate"),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_a_load_test_of_every_kind_of_server(name: str) -> None:
    """Recognised, asked in its own way, and counted right without a word from the user."""
    kind = kinds()[name]
    with running(kind) as url:
        endpoint = probe(url)
        run = run_load_test(endpoint, TWO_REQUESTS, options=LoadOptions(lead_s=0.01))
    rows = run.requests
    assert endpoint.dialect == name
    assert rows["error"].isna().all(), run.extra["delivered"]["first_messages"]
    assert rows["output_tokens"].tolist() == [5, 3]
    assert rows["prompt_tokens"].tolist() == [7, 9]
    assert [len(stamps) for stamps in rows["chunk_s"]] == [5, 3]
    assert run.scenario["endpoint"]["dialect"] == name
    api, prompt, forced, context, path = FACTS[name]
    assert (endpoint.api, endpoint.prompt, endpoint.force_length) == (api, prompt, forced)
    assert (endpoint.max_model_len, endpoint.url) == (context, f"{url}{path}")


@pytest.mark.parametrize(("name", "api"), [(n, a) for n, d in DIALECTS.items() for a in d.apis])
def test_every_api_of_every_kind_of_server(name: str, api: Api) -> None:
    kind = kinds()[name]
    with running(kind) as url:
        endpoint = probe(url, api=api, dialect=name)
        answer = httpx.post(endpoint.url, content=endpoint.body(REQUEST), trust_env=False)
    exchange = Exchange(0, [(1, answer.content)])
    assert answer.status_code == 200
    if api == "embeddings":
        vector = WholeAnswerReader(exchange, embedding=True).end()
        assert (vector.failure, vector.prompt_tokens, vector.output_tokens) == (None, 7, 0)
        return
    stream = read_stream(exchange)
    assert (stream.failure, stream.output_tokens, len(stream.stamps_ns)) == (None, 5, 5)


def test_the_page_has_a_row_for_every_dialect() -> None:
    page = (DOCS / "load-testing.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    documented = {cells[0].strip("| `"): cells[1:4] for cells in rows if len(cells) == 6}
    assert list(documented) == list(DIALECTS)
    for name, (apis, prompts, length) in documented.items():
        dialect = DIALECTS[name]
        assert apis == ", ".join(dialect.apis)
        assert prompts.startswith("token ids") == dialect.guesses_vocab
        assert ("token ids" in prompts) == dialect.takes_ids
        assert (length == "cannot be forced") == (not dialect.forces_length)


OLLAMA = {"/api/tags": {"models": []}, "/api/version": {"version": "0.12.0"}}
PROPS = {"/props": {"default_generation_settings": {"n_ctx": 512}}}
SGLANG_INFO = {"model_path": "m", "tokenizer_path": "m", "is_generation": True}
RECOGNISED: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "a name that no dialect knows": ("openai", models("somebody"), {}),
    "no name": ("openai", {"/v1/models": {"data": [{"id": "m"}]}}, {}),
    "the bundled engine": ("openai", models("servetwin", vocab_size=512), {}),
    "vLLM's name": ("vllm", models("vllm"), {}),
    "vLLM under another name": (
        "vllm",
        {**models("us", permission=[{}]), "/version": {"version": "0.12.0"}},
        {},
    ),
    "a version alone": ("openai", {**models("us"), "/version": {"version": "1.0"}}, {}),
    "SGLang's name": ("sglang", models("sglang"), {}),
    "SGLang's page": ("sglang", {"/get_model_info": SGLANG_INFO}, {}),
    "SGLang's newer page": ("sglang", {**models("us"), "/model_info": SGLANG_INFO}, {}),
    "SGLang answers like Ollama too": ("sglang", {**OLLAMA, "/get_model_info": SGLANG_INFO}, {}),
    "TGI": ("tgi", {"/info": {"model_id": "m", "max_total_tokens": 4096}}, {}),
    "embeddings have such a page too": (
        "openai",
        {**models("us"), "/info": {"model_id": "m", "max_input_length": 512}},
        {},
    ),
    "llama.cpp's name": ("llamacpp", models("llamacpp"), {}),
    "llama.cpp's header": ("llamacpp", models("me"), {"server": "llama.cpp"}),
    "llama.cpp's page": ("llamacpp", {**models("me"), **PROPS}, {}),
    "llama.cpp answers like Ollama too": ("llamacpp", {**OLLAMA, **PROPS}, {}),
    "TensorRT-LLM's name": ("tensorrt-llm", models("tensorrt_llm"), {}),
    "Triton's page": ("triton", {"/v2": {"name": "triton"}}, {}),
    "another inference server of that protocol": (
        "openai",
        {**models("us"), "/v2": {"name": "mlserver"}},
        {},
    ),
    "MLC's name": ("mlc", models("MLC-LLM"), {}),
    "transformers serve, whatever name signs the models of its cache": (
        "transformers",
        {**models("meta-llama"), "/openapi.json": {"paths": TRANSFORMERS_PATHS}},
        {},
    ),
    "transformers serve, nothing in its cache": (
        "transformers",
        {"/v1/models": {"data": []}, "/openapi.json": {"paths": TRANSFORMERS_PATHS}},
        {},
    ),
    "another server that describes itself": (
        "openai",
        {**models("us"), "/openapi.json": {"paths": {"/v1/completions": {}}}},
        {},
    ),
    "Ollama": ("ollama", {**models("library"), **OLLAMA}, {}),
    "pages that hold anything": (
        "openai",
        {**models("us"), "/info": [1], "/props": 3, "/v2": "<html>", "/api/tags": {"models": 1}},
        {},
    ),
}


@pytest.mark.parametrize(("name", "pages", "headers"), RECOGNISED.values(), ids=RECOGNISED)
def test_recognition(name: str, pages: dict[str, Any], headers: dict[str, str]) -> None:
    assert dialect_of(server_with(pages, **headers)).name == name


def test_the_vocabulary_of_llamacpp_is_used() -> None:
    with running(kinds()["llamacpp"]) as url:
        assert probe(url).vocab_size == 1000


TRY = "give the URL of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1"


def test_a_web_page() -> None:
    with pytest.raises(LoadTestError) as caught:
        dialect_of(server_with({"/v1/models": "<html>Sign in</html>"}))
    assert str(caught.value) == (
        f"GET http://h/v1/models: answered with a web page, not with JSON; {TRY}"
    )


def test_a_path_too_many() -> None:
    with running(kinds()["vllm"]) as url:
        with pytest.raises(LoadTestError) as caught:
            probe(f"{url}/llm")
        assert str(caught.value) == (
            f"GET {url}/llm/v1/models: answered 404; {TRY}; without a list: --dialect openai "
            f"--model NAME; there is one at {url}/v1"
        )


def test_only_the_first_models_are_listed() -> None:
    pages = {"/v1/models": {"data": [{"id": f"m{index}"} for index in range(14)]}}
    with running(Kind(pages)) as url, pytest.raises(LoadTestError) as caught:
        probe(url, model="gpt")
    assert str(caught.value).endswith("it serves m0, m1, m2, m3, m4, m5, m6, m7, m8, m9 and 4 more")


def test_tls_where_there_is_none() -> None:
    with running(kinds()["vllm"]) as url, pytest.raises(Unreachable) as caught:
        probe(url.replace("http:", "https:"))
    assert str(caught.value).endswith("it does not speak TLS there; try http://")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_a_server_that_never_answers(listener: socket.socket) -> None:
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(Unreachable) as caught:
        probe(url, timeout_s=0.1)
    assert str(caught.value) == (
        f"GET {url}/v1/models: no answer within 0.1 s; it takes connections and stays silent: "
        "is its model still loading?"
    )


ERRORS: dict[str, tuple[httpx.HTTPError, str]] = {
    "certificate": (
        httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"),
        "not trusted: name its CA in SSL_CERT_FILE, or give --insecure",
    ),
    "handshake": (
        httpx.ConnectError("[SSL: TLSV1_ALERT] alert"),
        "the TLS handshake failed; is this the server's TLS port?",
    ),
    "plain HTTP to TLS": (
        httpx.RemoteProtocolError("Server disconnected without sending a response."),
        "it hung up without an answer; does it want https://?",
    ),
    "no such host": (
        httpx.ConnectError("[Errno -2] Name or service not known"),
        f"is the server running? {TRY}",
    ),
}


@pytest.mark.parametrize(("error", "advice"), ERRORS.values(), ids=ERRORS)
def test_what_to_try_when_nothing_answers(error: httpx.HTTPError, advice: str) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error

    with pytest.raises(Unreachable) as caught:
        ServerProbe("http://h", httpx.Client(transport=httpx.MockTransport(fail)))
    assert str(caught.value) == f"GET http://h/v1/models: {error}; {advice}"


def test_pages_that_fail_are_no_pages() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json=models("us")["/v1/models"])
        raise httpx.ReadTimeout("slow")

    server = ServerProbe("http://h", httpx.Client(transport=httpx.MockTransport(answer)))
    assert dialect_of(server).name == "openai"
