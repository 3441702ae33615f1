"""How each kind of server is recognised, asked and read."""

import json
import socket
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from app.cli import app
from loadtest.credentials import use_headers, use_key_of
from loadtest.dialects.dialect import Api
from loadtest.dialects.registry import DIALECTS, dialect_of
from loadtest.dialects.server_probe import ServerProbe
from loadtest.endpoint import Endpoint, probe
from loadtest.http.exchange import Exchange, Failure
from loadtest.plan.context_limit import within_context
from loadtest.report.load_notes import hint
from loadtest.run.client import LoadOptions, run_load_test
from loadtest.stream.stream_reader import TokenStream, read_stream
from sim.records.run import load_run
from tests.support.dialect_servers import (
    CONTEXT,
    TRANSFORMERS_PATHS,
    Kind,
    kinds,
    models,
    openai_answer,
    running,
    sse,
)
from tests.support.paths import DOCS
from workloads.errors import LoadTestError, Unreachable
from workloads.generators.prompts import prompt_text, prompt_token_ids
from workloads.native import write_trace
from workloads.request import Request
from workloads.trace import Trace

SECRET = "sk-very-secret-0123456789"
REQUEST = Request("r0", 0.0, prompt_tokens=7, output_tokens=5)
TRACE = Trace((REQUEST, Request("r1", 0.02, 9, 3)), "two.jsonl")
IDS, TEXT = prompt_token_ids(REQUEST, 32_000), prompt_text(REQUEST)


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test sets in the environment ends with it."""
    for name in ("OPENAI_API_KEY", "SERVETWIN_API_KEY_ENV", "SERVETWIN_HEADERS"):
        monkeypatch.setenv(name, "")


# ------------------------------------------------------------------ every server, end to end


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
        run = run_load_test(endpoint, TRACE, options=LoadOptions(lead_s=0.01))
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
    stream = read_stream(Exchange(0, [(1, answer.content)]))
    assert answer.status_code == 200
    assert (stream.failure, stream.output_tokens, len(stream.stamps_ns)) == (None, 5, 5)


def test_the_page_has_a_row_for_every_dialect() -> None:
    page = (DOCS / "load-testing.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    told = {cells[0].strip("| `"): cells[1:4] for cells in rows if len(cells) == 6}
    assert list(told) == list(DIALECTS)
    for name, (apis, prompts, length) in told.items():
        dialect = DIALECTS[name]
        assert apis == ", ".join(dialect.apis)
        assert prompts.startswith("token ids") == dialect.guesses_vocab
        assert ("token ids" in prompts) == dialect.takes_ids
        assert (length == "cannot be forced") == (not dialect.forces_length)


# ------------------------------------------------------------------ bodies

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


# ------------------------------------------------------------------ recognition


def server_with(pages: Mapping[str, Any], **headers: str) -> ServerProbe:
    def answer(request: httpx.Request) -> httpx.Response:
        page = pages.get(request.url.path)
        if isinstance(page, str):
            return httpx.Response(200, html=page)
        return httpx.Response(200 if page is not None else 404, json=page, headers=headers)

    return ServerProbe("http://h", httpx.Client(transport=httpx.MockTransport(answer), timeout=1.0))


OLLAMA = {"/api/tags": {"models": []}, "/api/version": {"version": "0.12.0"}}
PROPS = {"/props": {"default_generation_settings": {"n_ctx": 512}}}
SGLANG_INFO = {"model_path": "m", "tokenizer_path": "m", "is_generation": True}
RECOGNISED: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "a name that nobody knows": ("openai", models("somebody"), {}),
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
    "transformers serve, whoever signed the models of its cache": (
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


# ------------------------------------------------------------------ streams


def read(*segments: bytes, failure: Failure | None = None) -> TokenStream:
    """The stream of these reads, stamped 1, 2, 3, ..."""
    return read_stream(Exchange(0, list(enumerate(segments, 1)), failure=failure))


def sglang(made: int, text: str, finish: Any = None, **told: Any) -> bytes:
    info = {"prompt_tokens": 7, "completion_tokens": made, "finish_reason": finish, **told}
    return sse({"text": text, "meta_info": info})[0]


def tgi(text: str, special: bool = False, last: int | None = None) -> bytes:
    token = {"id": 5, "text": text, "special": special}
    details = {"finish_reason": "length", "generated_tokens": last, "input_length": 7}
    ends = {"generated_text": "all", "details": details} if last else {"generated_text": None}
    return sse({"token": token, **ends})[0]


def llama(content: str, *ids: int, **told: Any) -> bytes:
    return sse({"content": content, "tokens": ids, "stop": False, **told})[0]


def llama_end(made: int, **told: Any) -> bytes:
    counts = {"tokens_predicted": made, "tokens_evaluated": 7}
    return sse({"content": "", "tokens": [], "stop": True, **counts, **told})[0]


def hf(text: str) -> bytes:
    return sse({"choices": [{"index": 0, "text": text}]})[0]


def hf_end(made: int) -> bytes:
    usage = {"prompt_tokens": 7, "completion_tokens": made}
    choice = {"index": 0, "text": "", "finish_reason": "length"}
    return sse({"choices": [choice], "usage": usage})[0]


def ollama(text: str, **more: Any) -> bytes:
    return json.dumps({"response": text, "done": False, **more}).encode() + b"\n"


def ollama_end(made: int) -> bytes:
    return ollama("", done=True, eval_count=made, prompt_eval_count=7)


def triton(text: str) -> bytes:
    return sse({"model_name": "ensemble", "text_output": text})[0]


LENGTH = {"type": "length", "length": 3}
EURO = ollama("€").replace(b"\\u20ac", "€".encode())
STREAMS: dict[str, tuple[tuple[bytes, ...], list[int], list[int], int, str]] = {
    # reads, stamps, tokens of each event, output tokens, where they are from
    "SGLang": (
        (sglang(1, "a"), sglang(2, "ab"), sglang(3, "abc", LENGTH), b"data: [DONE]\n\n"),
        [1, 2, 3], [1, 1, 1], 3, "usage",
    ),
    "SGLang, several tokens per event": (
        (sglang(4, "abcd"), sglang(8, "abcdefgh"), sglang(10, "abcdefghij", LENGTH)),
        [1, 2, 3], [4, 4, 2], 10, "usage",
    ),
    "SGLang, text that is not repeated": (
        (sglang(1, "a"), sglang(2, "b"), sglang(3, "c", LENGTH)), [1, 2, 3], [1, 1, 1], 3, "usage",
    ),
    "SGLang, half a character": (
        (sglang(1, ""), sglang(2, "€"), sglang(2, "€", LENGTH)), [1, 2], [1, 1], 2, "usage",
    ),
    "TGI": ((tgi("a"), tgi("b"), tgi("c", last=3)), [1, 2, 3], [1, 1, 1], 3, "usage"),
    "TGI, special tokens are tokens": (
        (tgi("a"), tgi("</s>", special=True, last=2)), [1, 2], [1, 1], 2, "usage",
    ),
    "TGI, without a space after the colon": (
        (tgi("a").replace(b": ", b":", 1), tgi("b", last=2)), [1, 2], [1, 1], 2, "usage",
    ),
    "llama.cpp": (
        (llama("a", 5), llama("b", 6), llama_end(2)), [1, 2], [1, 1], 2, "usage",
    ),
    "llama.cpp, without ids": ((llama("a"), llama("b"), llama_end(2)), [1, 2], [1, 1], 2, "usage"),
    "llama.cpp, half a character held back": (
        (llama("a", 5, tokens_predicted=1), llama("€", 8, tokens_predicted=4), llama_end(4)),
        [1, 2], [1, 3], 4, "usage",
    ),
    "llama.cpp, signs of life": (
        (b": ping\n\n", llama("a", 5), b":\n\n", llama_end(1)), [2], [1], 1, "usage",
    ),
    "llama.cpp, last token without text": (
        (llama("a", 5), llama("b", 6), llama_end(3)), [1, 2, 3], [1, 1, 1], 3, "usage",
    ),
    "transformers": (
        (hf("a"), hf("b"), hf_end(2)), [1, 2], [1, 1], 2, "usage",
    ),
    "transformers, a word held back": (
        (hf("a"), hf(" long word"), hf("b") + hf("c"), hf_end(7)),
        [1, 2, 3, 3], [1, 1, 1, 1], 7, "usage",
    ),
    "transformers, last token without text": (
        (hf("a"), hf("b"), hf_end(3)), [1, 2, 3], [1, 1, 1], 3, "usage",
    ),
    "Triton": ((triton("a"), triton("b"), triton("")), [1, 2], [1, 1], 2, "events"),
    "Ollama": ((ollama("a"), ollama("b"), ollama_end(2)), [1, 2], [1, 1], 2, "usage"),
    "Ollama, thinking": (
        (ollama("", thinking="a"), ollama("b"), ollama_end(2)), [1, 2], [1, 1], 2, "usage",
    ),
    "Ollama, text with the end": (
        (ollama("a"), ollama("b", done=True, eval_count=2)), [1, 2], [1, 1], 2, "usage",
    ),
    "Ollama, CRLF and several lines per read": (
        ((ollama("a") + ollama("b")).replace(b"\n", b"\r\n"), b"\r\n", ollama_end(2)),
        [1, 1], [1, 1], 2, "usage",
    ),
    "Ollama, a line and a character cut": (
        (EURO[:-22], EURO[-22:-1], b"\n" + ollama("b")[:9], ollama("b")[9:] + ollama_end(2)),
        [3, 4], [1, 1], 2, "usage",
    ),
    "Ollama, no line end at the end": (
        (ollama("a"), ollama("b"), ollama_end(2)[:-1]), [1, 2], [1, 1], 2, "usage",
    ),
    "OpenAI's events with fields of others": (
        (
            b'data: {"choices": [{"text": "a"}], "stop": false, "done": true, "token": 5}\n\n',
            b'data: {"choices": [{"text": "b", "finish_reason": "stop"}], "text_output": ""}\n\n',
        ),
        [1, 2], [1, 1], 2, "events",
    ),
    "an answer in one piece": (
        (
            b'{"choices": [{"text": "abc", "finish_reason": "length"}],'
            b' "usage": {"prompt_tokens": 7, "completion_tokens": 3}}',
        ),
        [1], [3], 3, "usage",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("reads", "stamps", "tokens", "output_tokens", "source"), STREAMS.values(), ids=STREAMS
)
def test_streams(
    reads: tuple[bytes, ...],
    stamps: list[int],
    tokens: list[int],
    output_tokens: int,
    source: str,
) -> None:
    stream = read(*reads)
    assert stream.failure is None
    assert (stream.stamps_ns, stream.tokens) == (stamps, tokens)
    assert (stream.output_tokens, stream.tokens_from) == (output_tokens, source)


CUT = Failure("broken_stream", "peer closed connection")
UNENDED = Failure("broken_stream", "ended without finish_reason and without [DONE]")
BROKEN: dict[str, tuple[tuple[bytes, ...], Failure | None, Failure]] = {
    "SGLang gave it up": (
        (sglang(1, "a"), sglang(1, "a", {"type": "abort", "message": "out of memory"})),
        None,
        Failure("sse_error", "out of memory"),
    ),
    "SGLang gave it up without a word": (
        (sglang(0, "", {"type": "abort"}),),
        None,
        Failure("sse_error", "aborted"),
    ),
    "SGLang's error": (
        (b'data: {"error": {"message": "too long"}}\n\n',),
        None,
        Failure("sse_error", "too long"),
    ),
    "SGLang ended early": ((sglang(1, "a"),), None, UNENDED),
    "TGI's error": (
        (tgi("a"), b'data:{"error": "CUDA error", "error_type": "generation"}\n\n'),
        None,
        Failure("sse_error", "CUDA error"),
    ),
    "TGI ended early": ((tgi("a"),), None, UNENDED),
    "llama.cpp's error": (
        (b'data: {"error": {"code": 500, "message": "no slot"}}\n\n',),
        None,
        Failure("sse_error", "no slot"),
    ),
    "llama.cpp ended early": ((llama("a", 5),), None, UNENDED),
    "Triton was cut": ((triton("a"),), CUT, CUT),
    "Triton's error": (
        (b'data: {"error": "no such model"}\n\n',),
        None,
        Failure("sse_error", "no such model"),
    ),
    "Ollama's error": (
        (ollama("a"), b'{"error": "model runner has stopped"}\n'),
        None,
        Failure("sse_error", "model runner has stopped"),
    ),
    "Ollama ended early": ((ollama("a"),), None, UNENDED),
    "half a line": (
        (ollama("a"), b'{"resp'),
        None,
        Failure("broken_stream", "not a JSON object: '{\"resp'"),
    ),
    "a stream of nothing known": (
        (b'data: {"word": "a"}\n\n',),
        None,
        Failure("no_token", r"""no event with text; the body begins 'data: {"word": "a"}\n\n'"""),
    ),
}


@pytest.mark.parametrize(("reads", "failure", "expected"), BROKEN.values(), ids=BROKEN)
def test_broken_streams(
    reads: tuple[bytes, ...], failure: Failure | None, expected: Failure
) -> None:
    assert read(*reads, failure=failure).failure == expected


@pytest.mark.parametrize(
    ("reads", "cached"),
    [
        ((sglang(1, "a", LENGTH, cached_tokens=4),), 4),
        ((llama("a", 5), llama_end(1, timings={"cache_n": 4})), 4),
        ((llama("a", 5), llama_end(1)), 0),
        ((tgi("a", last=1),), 0),
        ((ollama("a"), ollama_end(1)), 0),
    ],
)
def test_counts_of_the_prompt(reads: tuple[bytes, ...], cached: int) -> None:
    stream = read(*reads)
    assert (stream.prompt_tokens, stream.cached_tokens) == (7, cached)


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    kind=st.sampled_from(["sglang", "llamacpp"]),
    cuts=st.sets(st.integers(1, 2_000), max_size=10),
)
def test_running_counts_tell_the_tokens_of_every_event(
    sizes: list[int], kind: str, cuts: set[int]
) -> None:
    made = list(accumulate(sizes))
    if kind == "sglang":
        ends = [None] * (len(sizes) - 1) + [LENGTH]
        events = [sglang(n, "w" * n, end) for n, end in zip(made, ends, strict=True)]
    else:
        events = [llama("w", 5, tokens_predicted=n) for n in made] + [llama_end(made[-1])]
    stream = read(*pieces(b"".join(events), cuts))
    assert (stream.failure, stream.tokens, stream.output_tokens) == (None, sizes, sum(sizes))


@given(
    words=st.lists(st.text(min_size=1), min_size=1, max_size=6), cuts=st.sets(st.integers(1, 999))
)
def test_cuts_only_delay_the_stamps_of_lines(words: list[str], cuts: set[int]) -> None:
    """A line is stamped by the read that holds its end, whatever separators its text has."""
    lines = [json.dumps({"response": w, "done": False}, ensure_ascii=False).encode() for w in words]
    body = b"".join(line + b"\n" for line in lines) + ollama_end(len(words))
    parts = pieces(body, cuts)
    ends = list(accumulate(len(line) + 1 for line in lines))
    starts = list(accumulate(map(len, parts), initial=0))[:-1]
    assert read(*parts).stamps_ns == [sum(start < end for start in starts) for end in ends]


def pieces(body: bytes, cuts: set[int]) -> list[bytes]:
    edges = [0, *sorted(cut for cut in cuts if cut < len(body)), len(body)]
    return [body[a:b] for a, b in pairwise(edges)]


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"dialect": "sglan"}, "--dialect sglan: unknown; did you mean 'sglang'?"),
        (
            {"dialect": "?"},
            "--dialect ?: unknown; there are openai, vllm, sglang, tgi, llamacpp, tensorrt-llm, "
            "triton, mlc, transformers, ollama",
        ),
        ({"api": "native"}, "--api native: the dialect openai has completions or chat"),
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
            f"GET {url}/llm/v1/models: answered 404; {TRY}; there is one at {url}/v1"
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
        "its certificate is not trusted; name its CA in SSL_CERT_FILE",
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


HINTS: list[tuple[dict[str, str], str | None]] = [
    ({"no_token": "no event with text; the body begins '<!doctype html>'"}, "web page"),
    ({"no_token": "no event with text; the body begins 'data: {}'"}, "--dialect"),
    ({"http_4xx": "HTTP 400: Unrecognized request argument: ignore_eos"}, "--no-force-length"),
    ({"http_4xx": "HTTP 401: no"}, "--api-key-env"),
    ({"http_4xx": "HTTP 404: Not Found"}, "--api"),
    ({"http_4xx": "HTTP 400: maximum context length is 4096"}, "--on-too-long clip"),
    ({"http_3xx": "HTTP 302: "}, "redirects"),
    ({"timeout": "no complete answer within 600 s"}, "--timeout"),
    ({"connect": "refused"}, "still running"),
    ({"http_5xx": "HTTP 500: boom"}, None),
    ({"http_4xx": "HTTP 400: prompt is empty"}, None),
    ({}, None),
]


@pytest.mark.parametrize(("messages", "advice"), HINTS)
def test_hints(messages: dict[str, str], advice: str | None) -> None:
    found = hint(messages)
    assert found is None if advice is None else advice in str(found)


# ------------------------------------------------------------------ too long requests


def endpoint_of(context: int | None) -> Endpoint:
    return Endpoint("http://h/v1", "m", max_model_len=context)


SHARED = Request("c", 2.0, 80, 40, (1, 2, 3, 4, 5), 16, shared_prefix_tokens=70)
LONG = Trace((Request("a", 0.0, 60, 40), Request("b", 1.0, 90, 20), SHARED), "long.jsonl")


def test_nothing_is_too_long_where_the_context_is_not_known() -> None:
    assert within_context(LONG, endpoint_of(None), None) is LONG
    assert within_context(LONG, endpoint_of(120), None) is LONG


def test_too_long_requests_want_a_decision() -> None:
    with pytest.raises(LoadTestError) as caught:
        within_context(LONG, endpoint_of(100), None)
    assert str(caught.value) == (
        "2 of 3 requests are longer than the server's context of 100 tokens (the longest has 120); "
        "--on-too-long drop leaves them out, --on-too-long clip shortens them"
    )


def test_too_long_requests_are_left_out() -> None:
    kept = within_context(LONG, endpoint_of(100), "drop")
    assert [request.request_id for request in kept] == ["a"]
    assert kept.notes == ("2 requests beyond 100 tokens dropped",)


def test_too_long_requests_are_shortened() -> None:
    kept = within_context(LONG, endpoint_of(100), "clip")
    lengths = [(request.prompt_tokens, request.output_tokens) for request in kept]
    assert lengths == [(60, 40), (80, 20), (60, 40)]
    assert kept.requests[2].prefix_block_ids == (1, 2, 3, 4)
    assert kept.requests[2].shared_prefix_tokens == 60
    assert kept.notes == ("2 requests shortened to 100 tokens",)


@given(prompt=st.integers(1, 10_000), output=st.integers(1, 10_000), context=st.integers(2, 5_000))
def test_what_is_shortened_fits_and_loses_no_more_than_it_must(
    prompt: int, output: int, context: int
) -> None:
    trace = Trace((Request("a", 0.0, prompt, output),), "one")
    (kept,) = within_context(trace, endpoint_of(context), "clip")
    assert 1 <= kept.prompt_tokens <= prompt
    assert 1 <= kept.output_tokens <= output
    assert kept.total_tokens == min(context, prompt + output)
    assert kept.output_tokens >= min(output, context // 2)


# ------------------------------------------------------------------ the command


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    write_trace(TRACE, tmp_path / "two.jsonl")
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
    assert stored == {"X-Team": "blue", "X-Api-Key": "***"}
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


@pytest.mark.parametrize("line", ["X-Team", ": blue", "X-Team:", "X Team: blue", "X: a\nY: b"])
def test_headers_that_are_none(line: str) -> None:
    with pytest.raises(LoadTestError) as caught:
        use_headers(["X-Fine: yes", line])
    assert str(caught.value) == (
        "--header number 2 is no header; write 'NAME: VALUE', such as 'X-Team: a'"
    )


def test_a_key_that_is_nowhere() -> None:
    with pytest.raises(LoadTestError) as caught:
        use_key_of("NO_SUCH_KEY")
    assert str(caught.value) == (
        "--api-key-env NO_SUCH_KEY: no such environment variable; put the key into one and give "
        "its name"
    )


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
