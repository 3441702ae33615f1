import json
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.loadtest.http.exchange import Exchange, Failure
from servetwin.loadtest.http.recorded_reads import RecordedReads
from servetwin.loadtest.stream.stream_reader import StreamReader, TokenStream, read_stream
from tests.support.loadtest_server import DONE, cut_at, delta, event, text, usage


def read(*segments: bytes, failure: Failure | None = None) -> TokenStream:
    """The stream of these reads, stamped 1, 2, 3, ..."""
    return read_stream(Exchange(0, list(enumerate(segments, 1)), failure=failure))


@dataclass(frozen=True)
class Shape:
    segments: tuple[bytes, ...]
    stamps: list[int]
    output_tokens: int
    first_chunk_tokens: int = 1


def crlf(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


def cr(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r")


THREE = (text("a"), text("b"), text("c", "length"))
EURO = text("€")
BOM = b"\xef\xbb\xbf"
CUT = EURO.index("€".encode()) + 1
WHOLE = {
    "plain": Shape((*THREE, usage(3), DONE), [1, 2, 3], 3),
    "CRLF line ends": Shape(tuple(map(crlf, (*THREE, usage(3), DONE))), [1, 2, 3], 3),
    "comments": Shape((b": ping\n\n", THREE[0], b":\n\n:\n" + THREE[1], THREE[2]), [2, 3, 4], 3),
    "character cut across reads": Shape(
        (EURO[:CUT], EURO[CUT:], text("b", "length"), DONE), [2, 3], 2
    ),
    "event cut across reads": Shape(
        (THREE[0][:9], THREE[0][9:-1], b"\n" + THREE[1][:4], THREE[1][4:], THREE[2], DONE),
        [3, 4, 5],
        3,
    ),
    "CRLF cut in the middle": Shape(
        (crlf(THREE[0])[:-1], b"\n" + crlf(THREE[1]) + crlf(THREE[2]), DONE), [2, 2, 2], 3
    ),
    "CR line ends": Shape(tuple(map(cr, (*THREE, usage(3), DONE))), [1, 2, 3], 3),
    "CR, the second half of a line end in the next read": Shape(
        (cr(THREE[0]) + b"\r", b"\n" + cr(THREE[1]), cr(THREE[2]) + DONE), [1, 2, 3], 3
    ),
    "byte order mark": Shape((BOM + THREE[0] + THREE[1], THREE[2] + DONE), [1, 1, 2], 3),
    "byte order mark, cut": Shape(
        (BOM[:1], BOM[1:2], BOM[2:], THREE[0], THREE[1] + THREE[2]), [4, 5, 5], 3
    ),
    "byte order mark and JSON": Shape(
        (BOM, b"\n ", b'{"choices": [{"text": "a b", "finish_reason": "stop"}]}'), [3], 1
    ),
    "JSON over several lines": Shape(
        (
            b'{\n  "choices": [\n    {"message": {"content": "a b"}, "finish_reason": "stop"}\n',
            b'  ],\n  "usage": {\n    "completion_tokens": 2\n  }\n}\n',
        ),
        [2],
        2,
        2,
    ),
    "several events per read": Shape(
        (THREE[0] + THREE[1], THREE[2] + usage(3) + DONE), [1, 1, 2], 3
    ),
    "data over several lines": Shape(
        (b'data: {"choices":\ndata: [{"text": "a",\ndata: "finish_reason": "stop"}]}\n\n',), [1], 1
    ),
    "named events, ids": Shape((b"event: token\nid: 4\n" + THREE[0], THREE[2]), [1, 2], 2),
    "line separators inside a text": Shape((text("a\u2028b\u0085c"), THREE[2], DONE), [1, 2], 2),
    "no DONE": Shape((*THREE, usage(3)), [1, 2, 3], 3),
    "no usage": Shape((*THREE, DONE), [1, 2, 3], 3),
    "DONE only": Shape((text("a"), text("b"), DONE), [1, 2], 2),
    "usage tells more tokens than events": Shape((*THREE, usage(8), DONE), [1, 2, 3], 8),
    "usage with every event": Shape(
        (
            event(choices=[{"text": "a"}], usage={"completion_tokens": 1}),
            event(choices=[{"text": "b"}], usage={"completion_tokens": 2}),
            DONE,
        ),
        [1, 2],
        2,
    ),
    "usage with every event of several tokens": Shape(
        (
            event(choices=[{"delta": {"role": "assistant"}}], usage={"completion_tokens": 0}),
            event(choices=[{"delta": {"content": "a b c"}}], usage={"completion_tokens": 3}),
            event(choices=[{"delta": {"content": "d e"}}], usage={"completion_tokens": 5}),
            DONE,
        ),
        [2, 3],
        5,
        3,
    ),
    "usage says of an empty text that it is none": Shape(
        (
            event(choices=[{"text": ""}], usage={"completion_tokens": 0}),
            event(choices=[{"text": "a"}], usage={"completion_tokens": 1}),
            DONE,
        ),
        [2],
        1,
    ),
    "empty texts that are no tokens by the usage": Shape(
        (text(""), text(""), text("a"), text(""), text("b", "stop"), usage(2), DONE), [3, 5], 2
    ),
    "empty texts that may be tokens": Shape(
        (text(""), text(""), text("a"), text("b", "stop"), usage(3), DONE), [1, 2, 3, 4], 3
    ),
    "all tokens in one event": Shape((text("a b c", "stop"), usage(3), DONE), [1], 3, 3),
    "null usage": Shape((event(choices=[{"text": "a"}], usage=None), DONE), [1], 1),
    "token with empty text": Shape((text(""), text("a"), text("b", "stop"), DONE), [1, 2, 3], 3),
    "empty end is no token": Shape((text("a"), text("", "stop"), usage(1), DONE), [1], 1),
    "empty end is a token by the usage": Shape(
        (text("a"), text("", "length"), usage(2), DONE), [1, 2], 2
    ),
    "token ids": Shape(
        (text("ab", token_ids=[5, 6]), text("c", "length", token_ids=[7]), DONE), [1, 2], 3, 2
    ),
    "role-only chunk": Shape(
        (delta(role="assistant"), delta(content="a"), delta("stop"), usage(1), DONE), [2], 1
    ),
    "role with empty content": Shape(
        (delta(role="assistant", content=""), delta(content="a"), delta("stop"), DONE), [2], 1
    ),
    "empty deltas are no tokens": Shape(
        (delta(content=""), delta(content=""), delta(content="a"), delta("stop"), DONE), [3], 1
    ),
    "reasoning": Shape((delta(reasoning="a"), delta(content="b"), delta("stop"), DONE), [1, 2], 2),
    "reasoning_content": Shape(
        (delta(reasoning_content="a"), delta(content="b"), delta("stop"), DONE), [1, 2], 2
    ),
    "refusal": Shape((delta(refusal="a"), delta(refusal="b"), delta("stop"), DONE), [1, 2], 2),
    "tokens without text by the usage of chat": Shape(
        (
            delta(role="assistant", content=""),
            delta(content=""),
            delta(content="a"),
            delta(content=""),
            delta("stop", content="b"),
            usage(4),
            DONE,
        ),
        [2, 3, 4, 5],
        4,
    ),
    "tokens without text, the last one with the end": Shape(
        (delta(content="a"), delta(content=""), delta("length"), usage(3), DONE), [1, 2, 3], 3
    ),
    "token without text by its own usage": Shape(
        (
            event(choices=[{"delta": {"content": ""}}], usage={"completion_tokens": 1}),
            event(choices=[{"delta": {"content": "a"}}], usage={"completion_tokens": 2}),
            DONE,
        ),
        [1, 2],
        2,
    ),
    "more tokens than events with text and without": Shape(
        (delta(content=""), delta(content="a"), delta("stop"), usage(9), DONE), [2], 9, 9
    ),
    "tool call": Shape(
        (delta(role="assistant"), delta(tool_calls=[{"index": 0}]), delta("tool_calls"), DONE),
        [2],
        1,
    ),
    "finish in the last content": Shape(
        (delta(content="a"), delta("length", content="b")), [1, 2], 2
    ),
}


@pytest.mark.parametrize("shape", WHOLE.values(), ids=WHOLE.keys())
def test_whole_streams(shape: Shape) -> None:
    stream = read(*shape.segments)
    assert stream.failure is None
    assert stream.stamps_ns.tolist() == shape.stamps
    assert stream.output_tokens == shape.output_tokens
    assert stream.first_chunk_tokens == shape.first_chunk_tokens


IDS = (text("ab", token_ids=[5, 6]), text("c", "length", token_ids=[7]))


@pytest.mark.parametrize(
    ("segments", "tokens_from", "first_chunk_told"),
    [
        ((*THREE, usage(3)), "usage", False),
        ((*IDS, usage(3)), "usage", True),
        (IDS, "token_ids", True),
        ((IDS[0], THREE[2]), "events", True),
        (THREE, "events", False),
        ((THREE[2], usage(9)), "usage", True),  # whatever it holds, the first event holds it all
        ((), "events", False),
    ],
)
def test_what_counts_rest_on(
    segments: tuple[bytes, ...], tokens_from: str, first_chunk_told: bool
) -> None:
    stream = read(*segments)
    assert (stream.tokens_from, stream.first_chunk_told) == (tokens_from, first_chunk_told)


ERROR = event(error={"message": "out of\nmemory", "type": "server_error"})
BROKEN = {
    "cut after two tokens": (
        THREE[:2],
        [1, 2],
        Failure("broken_stream", "ended without finish_reason and without [DONE]"),
    ),
    "error object mid-stream": ((THREE[0], ERROR), [1], Failure("sse_error", "out of memory")),
    "error object, then DONE": (
        (THREE[0], ERROR, DONE),
        [1],
        Failure("sse_error", "out of memory"),
    ),
    "error as text": ((event(error="no room"),), [], Failure("sse_error", "no room")),
    "error of old servers": (
        (event(object="error", message="bad"),),
        [],
        Failure("sse_error", "bad"),
    ),
    "error by its name": (
        (THREE[0], b'event: error\ndata: {"message": "no room", "type": "x"}\n\n'),
        [1],
        Failure("sse_error", "no room"),
    ),
    "error by its name, no JSON": (
        (b"data: overloaded\nevent:error\n\n", DONE),
        [],
        Failure("sse_error", "overloaded"),
    ),
    "garbage event": (
        (THREE[0], b"data: {nonsense\n\n"),
        [1],
        Failure("broken_stream", "not a JSON object: '{nonsense'"),
    ),
    "event that is a list": (
        (b"data: [1]\n\n",),
        [],
        Failure("broken_stream", "not a JSON object: '[1]'"),
    ),
    "not SSE": (
        (b"<html>busy</html>",),
        [],
        Failure("no_token", "no event with text; the body begins '<html>busy</html>'"),
    ),
    "empty body": ((), [], Failure("no_token", "no event with text; the body begins ''")),
    "only DONE": (
        (DONE,),
        [],
        Failure("no_token", r"no event with text; the body begins 'data: [DONE]\n\n'"),
    ),
    "choices of the wrong kind": (
        (event(choices=7), event(choices=[7])),
        [],
        Failure(
            "no_token",
            "no event with text; the body begins "
            r"""'data: {"choices": 7}\n\ndata: {"choices": [7]}\n\n'""",
        ),
    ),
}


@pytest.mark.parametrize(("segments", "stamps", "failure"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_streams(segments: tuple[bytes, ...], stamps: list[int], failure: Failure) -> None:
    stream = read(*segments)
    assert stream.failure == failure
    assert stream.stamps_ns.tolist() == stamps


@pytest.mark.parametrize(
    ("segments", "fails"), [((*THREE, DONE), False), (THREE, True), (THREE[:1], True)]
)
def test_a_broken_connection_matters_only_before_done(
    segments: tuple[bytes, ...], fails: bool
) -> None:
    broken = Failure("broken_stream", "peer closed connection")
    assert read(*segments, failure=broken).failure == (broken if fails else None)


def test_counts_of_the_server() -> None:
    stream = read(*THREE, usage(3, prompt=40, cached=32), DONE)
    assert (stream.prompt_tokens, stream.cached_tokens, stream.output_tokens) == (40, 32, 3)


def test_counts_where_the_server_says_nothing() -> None:
    stream = read(*THREE, DONE)
    assert (stream.prompt_tokens, stream.cached_tokens, stream.output_tokens) == (None, 0, 3)


@given(
    words=st.lists(st.text(min_size=1), min_size=1, max_size=6),
    ends=st.sampled_from([b"\n", b"\r\n"]),
    cuts=st.sets(st.integers(1, 2_000), max_size=12),
)
def test_cuts_change_no_count_and_only_delay_stamps(
    words: list[str], ends: bytes, cuts: set[int]
) -> None:
    """However the bytes arrive, an event is stamped by the read that holds its last byte."""
    events = [
        b"data: "
        + json.dumps({"choices": [{"text": word}]}, ensure_ascii=False).encode()
        + 2 * ends
        for word in words
    ]
    body = b"".join([*events, b"data: [DONE]", 2 * ends])
    edges = [0, *sorted(cut for cut in cuts if cut < len(body)), len(body)]
    pieces = [body[a:b] for a, b in pairwise(edges)]
    stream = read(*pieces)
    last_bytes, end = [], 0
    for piece in events:
        end += len(piece)
        last_bytes.append(end)
    assert stream.stamps_ns.tolist() == [sum(edge < end for edge in edges) for end in last_bytes]
    assert stream.output_tokens == len(events)


EVENTS = (
    text("a"), text(""), delta(content="b"), delta(reasoning="c"), delta(role="assistant"),
    b": ping\n\n", text("d", "length", token_ids=[1, 2]), usage(3), DONE, b"data: {nonsense\n\n",
    text("e").replace(b"\n", b"\r\n"),
)  # fmt: skip


@given(
    events=st.lists(st.sampled_from(EVENTS), max_size=9),
    cuts=st.sets(st.integers(1, 500), max_size=6),
    steps=st.lists(st.integers(1, 3), max_size=6),
    failure=st.none() | st.just(Failure("cancelled", "in flight when interrupted")),
)
def test_steps_make_no_difference(
    events: list[bytes], cuts: set[int], steps: list[int], failure: Failure | None
) -> None:
    """Read piece by piece as it comes, or all at the end: the same stream."""
    at_once = Exchange(0, list(enumerate(cut_at(b"".join(events), cuts))), failure=failure)
    reads = RecordedReads()
    in_steps = Exchange(0, reads, failure=failure)
    reader = StreamReader(in_steps)
    more = iter(steps)
    for stamp_ns, data in at_once.reads:
        if data:
            reads.add(stamp_ns, data)
        if (most := next(more, None)) is not None:
            reader.advance(most)
    assert reader.end() == read_stream(at_once)
