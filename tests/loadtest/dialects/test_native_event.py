"""Native streams of every kind of server: counts, stamps, usage and how they end."""

import json
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.loadtest.http.exchange import Exchange, Failure
from servetwin.loadtest.stream.stream_reader import TokenStream, read_stream
from tests.support.dialect_servers import sse, tgi
from tests.support.loadtest_server import cut_at


def read(*segments: bytes, failure: Failure | None = None) -> TokenStream:
    """The stream of these reads, stamped 1, 2, 3, ..."""
    return read_stream(Exchange(0, list(enumerate(segments, 1)), failure=failure))


def sglang(made: int, text: str, finish: Any = None, **more: Any) -> bytes:
    info = {"prompt_tokens": 7, "completion_tokens": made, "finish_reason": finish, **more}
    return sse({"text": text, "meta_info": info})[0]


def llama(content: str, *ids: int, **more: Any) -> bytes:
    return sse({"content": content, "tokens": ids, "stop": False, **more})[0]


def llama_end(made: int, **more: Any) -> bytes:
    counts = {"tokens_predicted": made, "tokens_evaluated": 7}
    return sse({"content": "", "tokens": [], "stop": True, **counts, **more})[0]


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
    assert (stream.stamps_ns.tolist(), stream.tokens) == (stamps, tokens)
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
    stream = read(*cut_at(b"".join(events), cuts))
    assert (stream.failure, stream.tokens, stream.output_tokens) == (None, sizes, sum(sizes))


@given(
    words=st.lists(st.text(min_size=1), min_size=1, max_size=6), cuts=st.sets(st.integers(1, 999))
)
def test_cuts_only_delay_the_stamps_of_lines(words: list[str], cuts: set[int]) -> None:
    """A line is stamped by the read that holds its end, whatever separators its text has."""
    lines = [json.dumps({"response": w, "done": False}, ensure_ascii=False).encode() for w in words]
    body = b"".join(line + b"\n" for line in lines) + ollama_end(len(words))
    parts = cut_at(body, cuts)
    ends = list(accumulate(len(line) + 1 for line in lines))
    starts = list(accumulate(map(len, parts), initial=0))[:-1]
    assert read(*parts).stamps_ns.tolist() == [sum(start < end for start in starts) for end in ends]
