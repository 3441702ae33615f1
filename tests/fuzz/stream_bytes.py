"""Fuzz what a load tester reads: ``python -m tests.fuzz.stream_bytes --minutes 10``.

An input is an HTTP answer of one of the dialects, changed in its JSON, its framing or its bytes.
Laws: nothing is raised but what the reader expects; however the network cuts the bytes, the answer,
its tokens and its failure are the same; and all that comes of it can be written to a run folder.
"""

import gzip
import json
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from zlib import crc32

import httpx
import numpy as np

from servetwin.loadtest.http.exchange import Exchange
from servetwin.loadtest.http.http_parser import ResponseParser
from servetwin.loadtest.http.recorded_reads import RecordedReads
from servetwin.loadtest.plan.schedule import ScheduledRequest
from servetwin.loadtest.report.rows import Sending, request_rows
from servetwin.loadtest.stream.stream_reader import StreamReader, TokenStream, read_stream
from servetwin.loadtest.stream.whole_answer import WholeAnswerReader
from servetwin.workloads.request import Request
from tests.fuzz.campaign import command_line
from tests.fuzz.mutation import JsonValue, mutated_bytes, mutated_json

CUTTINGS = 3
"""Ways to cut an input, beside all at once and byte by byte."""
LONG = 3000
"""Inputs above so many bytes are not read byte by byte."""
BYTE_BY_BYTE = 4
"""One of so many shorter ones is."""
LARGEST = 2**63
GZIP = httpx.Headers({"content-encoding": "gzip"})
ASKED = Request("r", 0.0, 7, 4)


def _choice(**said: JsonValue) -> JsonValue:
    return {"id": "cmpl-1", "choices": [{"index": 0, "finish_reason": None, **said}]}


_USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
_META = {"id": "s", "prompt_tokens": 7, "completion_tokens": 2, "finish_reason": None}
EVENTS: list[JsonValue] = [
    _choice(text="a"),
    _choice(text=""),
    _choice(text="b c", token_ids=[5, 6]),
    _choice(text="é\n", finish_reason="length"),
    _choice(delta={"role": "assistant", "content": ""}),
    _choice(delta={"content": "a"}),
    _choice(delta={"content": ""}),
    _choice(delta={"reasoning": "hm", "refusal": "no"}),
    _choice(delta={"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}),
    _choice(message={"content": "whole"}, finish_reason="stop"),
    {"choices": [], "usage": _USAGE},
    {**_choice(text="a"), "usage": _USAGE},
    {"error": {"message": "no room", "code": 500}},
    {"object": "error", "message": "bad"},
    {"text": "a", "meta_info": _META},
    {"text": "ab", "meta_info": {**_META, "finish_reason": {"type": "abort", "message": "m"}}},
    {"token": {"id": 1, "text": "a"}, "generated_text": None},
    {"token": {"id": 1}, "generated_text": "a", "details": {"generated_tokens": 2}},
    {"content": "a", "stop": False, "tokens": [4], "tokens_predicted": 1},
    {"content": "", "stop": True, "tokens_predicted": 3, "timings": {"cache_n": 1}},
    {"text_output": "a", "model_name": "m"},
    {"object": "list", "data": [{"embedding": [0.5, -1]}], "usage": {"prompt_tokens": 7}},
    {"model": "m", "response": "a", "done": False},
    {"model": "m", "done": True, "prompt_eval_count": 7, "eval_count": 2},
]
"""One of each kind that a dialect has."""


def draw(rng: np.random.Generator) -> bytes:
    """Make an HTTP answer, right or wrong."""
    body = _body(rng)
    if rng.random() < 0.3:
        body = mutated_bytes(rng, body)
    answer = _answer(rng, body)
    return mutated_bytes(rng, answer) if rng.random() < 0.3 else answer


def _body(rng: np.random.Generator) -> bytes:
    events = [_event(rng) for _ in range(rng.integers(1, 9))]
    if rng.random() < 0.2:
        indent = 1 if rng.random() < 0.3 else None
        return b"\n".join(json.dumps(event, indent=indent).encode() for event in events)
    line_end = [b"\n", b"\n", b"\r\n", b"\r"][rng.integers(4)]
    start = b"\xef\xbb\xbf" if rng.random() < 0.1 else b""
    end = b"data: [DONE]\n\n" if rng.random() < 0.8 else b""
    stream = start + b"".join(_framed(rng, json.dumps(event)) for event in events) + end
    return stream.replace(b"\n", line_end)


def _event(rng: np.random.Generator) -> JsonValue:
    event = EVENTS[rng.integers(len(EVENTS))]
    return mutated_json(rng, event) if rng.random() < 0.4 else event


def _framed(rng: np.random.Generator, data: str) -> bytes:
    before = [b"", b"", b"", b": ping\n\n", b"event: error\n", b"id: 1\nevent: x\n", b"data\n"]
    return before[rng.integers(len(before))] + b"data: " + data.encode() + b"\n\n"


def _answer(rng: np.random.Generator, body: bytes) -> bytes:
    kind = rng.integers(3)
    if kind == 0:
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    if kind == 1:
        return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body
    chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in _pieces(rng, body) if piece]
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return b"".join([head, *chunks, b"0\r\n\r\n"])


def _pieces(rng: np.random.Generator, data: bytes) -> list[bytes]:
    cuts = sorted(rng.integers(0, len(data) + 1, rng.integers(0, 12)).tolist())
    edges = [0, *cuts, len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def check(data: bytes) -> None:
    """Read an answer in several cuttings; all must tell the same."""
    cuttings = _cuttings(data)
    first = parsed(next(cuttings))
    for pieces in cuttings:
        assert parsed(pieces) == first
    check_body(first[0])


def _cuttings(data: bytes) -> Iterator[list[bytes]]:
    rng = np.random.default_rng(crc32(data))
    yield [data]
    for _ in range(CUTTINGS):
        yield [piece for piece in _pieces(rng, data) if piece]
    if len(data) <= LONG and not rng.integers(BYTE_BY_BYTE):
        yield [data[at : at + 1] for at in range(len(data))]


def parsed(pieces: list[bytes]) -> tuple[bytes, object, bool, bool]:
    """Body and head, whether it is complete, and whether it is wrong."""
    parser = ResponseParser()
    body = b"".join([parser.feed(piece) for piece in pieces])
    parser.end()
    return body, parser.head, parser.complete, bool(parser.error)


def check_body(body: bytes) -> None:
    """Read a body in several cuttings: the same tokens, and rows that can be written."""
    cuttings = _cuttings(body)
    first = seen(next(cuttings))
    for pieces in cuttings:
        assert seen(pieces) == first
    _check_compressed(body, first)
    for read in (read_stream, _whole_text, _whole_embedding):
        _check_row(Exchange(0, [(5, body)] if body else []), read)


def _whole_text(exchange: Exchange) -> TokenStream:
    return WholeAnswerReader(exchange, embedding=False).end()


def _whole_embedding(exchange: Exchange) -> TokenStream:
    return WholeAnswerReader(exchange, embedding=True).end()


def _check_row(exchange: Exchange, read: Callable[[Exchange], TokenStream]) -> None:
    """Check that the row of an answer can be written, and that its counts fit each other."""
    send = ScheduledRequest(0.0, ASKED, b"")
    sending = Sending(exchange.sent_ns, exchange.reads, send=send)
    rows, messages = request_rows([sending], 0, "", read)
    json.dumps(messages, ensure_ascii=False).encode()
    for name, value in rows[0].items():
        assert not isinstance(value, int) or abs(value) < LARGEST, name
        assert not isinstance(value, str) or value.encode() is not None, name
    assert rows[0]["output_tokens"] >= 0
    assert 0 <= rows[0]["first_chunk_tokens"] <= max(rows[0]["output_tokens"], 1)


def _check_compressed(body: bytes, first: tuple[object, ...]) -> None:
    """Read a compressed body, which tells the same, and a broken one, which raises nothing."""
    rng = np.random.default_rng(crc32(body))
    packed = gzip.compress(body, 1)
    assert seen([piece for piece in _pieces(rng, packed) if piece], GZIP) == first
    seen([mutated_bytes(rng, packed) or b"x"], GZIP)


def seen(pieces: list[bytes], headers: httpx.Headers | None = None) -> tuple[object, ...]:
    """All that is read of a body but its stamps, with some pieces read ahead."""
    reads = RecordedReads()
    exchange = Exchange(0, reads, headers=headers)
    reader = StreamReader(exchange)
    for stamp_ns, piece in enumerate(pieces, 1):
        reads.add(stamp_ns, piece)
        if stamp_ns % 3 == 0:
            reader.advance(2)
    return _but_stamps(reader.end())


def _but_stamps(stream: TokenStream) -> tuple[object, ...]:
    assert stream.stamps_ns.tolist() == sorted(stream.stamps_ns)
    columns = (stream.tokens, stream.reported, stream.thoughts)
    assert {len(column) for column in columns} == {len(stream.stamps_ns)}
    counts = (stream.counted, stream.silent, len(stream.unspoken), repr(stream.usage))
    ends = (stream.finished, stream.done, stream.failure, stream.response_id, stream.is_lines)
    return (*columns, *counts, *ends, stream.listed, sorted(stream.others))


if __name__ == "__main__":
    sys.exit(command_line("stream_bytes", draw, check))
