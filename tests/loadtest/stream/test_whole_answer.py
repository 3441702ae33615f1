"""Answers that came whole."""

import gzip
import json
from typing import Any

import httpx
import pytest

from servetwin.loadtest.http.exchange import Exchange, Failure
from servetwin.loadtest.http.recorded_reads import RecordedReads
from servetwin.loadtest.plan.schedule import ScheduledRequest
from servetwin.loadtest.report.rows import Sending, request_rows
from servetwin.loadtest.stream.read_ahead import ReadAhead
from servetwin.loadtest.stream.whole_answer import WholeAnswer, WholeAnswerReader
from servetwin.workloads.request import Request

USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 4},
}
TEXT = {"id": "c-1", "choices": [{"text": "a b c", "finish_reason": "length"}], "usage": USAGE}
VECTOR = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [-0.5, 1e-9]}],
    "usage": {"prompt_tokens": 7, "total_tokens": 7},
}


def exchange_of(*pieces: bytes, encoding: str | None = None) -> Exchange:
    reads = RecordedReads()
    for number, piece in enumerate(pieces, 1):
        reads.add(1000 * number, piece)
    headers = httpx.Headers({"content-encoding": encoding} if encoding else {})
    return Exchange(sent_ns=500, reads=reads, headers=headers, ended=True, status_code=200)


def read(body: Any, *, embedding: bool = False) -> WholeAnswer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return WholeAnswerReader(exchange_of(data), embedding=embedding).end()


def test_the_last_byte_is_the_only_stamp() -> None:
    data = json.dumps(TEXT, indent=2).encode()
    answer = WholeAnswerReader(exchange_of(data[:20], data[20:]), embedding=False).end()
    assert answer.failure is None
    assert (answer.last_ns, answer.stamps_ns) == (2000, [])
    assert (answer.prompt_tokens, answer.output_tokens, answer.cached_tokens) == (7, 3, 4)
    assert (answer.tokens_from, answer.response_id) == ("usage", "c-1")


def test_the_row_has_an_end_and_no_first_token() -> None:
    exchange = exchange_of(json.dumps(TEXT).encode())
    send = ScheduledRequest(0.0, Request("r", 0.0, 7, 3), b"", model="m")
    sending = Sending(500, exchange.reads, exchange.headers, None, True, 200, send=send)
    ahead = ReadAhead(lambda one: WholeAnswerReader(one, embedding=False))
    ((row,), _) = request_rows([sending], 0, "", ahead.stream)
    assert row["last_token_s"] == 1e-6
    assert row["first_token_s"] != row["first_token_s"], "undefined"
    assert (row["output_tokens"], len(row["chunk_s"]), row["model"]) == (3, 0, "m")


def test_a_compressed_answer_is_read() -> None:
    data = gzip.compress(json.dumps(TEXT).encode())
    answer = WholeAnswerReader(exchange_of(data, encoding="gzip"), embedding=False).end()
    assert (answer.failure, answer.output_tokens) == (None, 3)
    broken = WholeAnswerReader(exchange_of(data[:9] + b"x", encoding="gzip"), embedding=False)
    failure = broken.end().failure
    assert failure
    assert failure.kind == "broken_stream"


@pytest.mark.parametrize("vector", [[-0.5, 0.25], "AACAPw=="])
def test_an_embedding_has_no_tokens(vector: object) -> None:
    body = {**VECTOR, "data": [{"embedding": vector}]}
    answer = read(body, embedding=True)
    assert answer.failure is None
    assert (answer.output_tokens, answer.prompt_tokens, answer.tokens_from) == (0, 7, "usage")


@pytest.mark.parametrize(
    ("body", "embedding", "kind", "said"),
    [
        (b"data: {}\n\n", False, "broken_stream", "not one JSON object; the body begins 'data: "),
        (b"<html>", False, "broken_stream", "not one JSON object; the body begins '<html>'"),
        (b"", False, "broken_stream", "not one JSON object"),
        (json.dumps(TEXT).encode()[:-1], False, "broken_stream", "not one JSON object"),
        ([1], False, "broken_stream", "not one JSON object"),
        (b"[" * 100_000, False, "broken_stream", "not one JSON object"),
        ({"error": {"message": "too long"}}, False, "sse_error", "too long"),
        ({"choices": []}, False, "no_token", "no choices; the body begins"),
        ({"choices": [{"text": ""}]}, False, "no_token", "no text; the body begins"),
        (VECTOR, False, "no_token", "no choices; the body begins"),
        (TEXT, True, "no_token", "no embedding; the body begins"),
        ({"data": [{"embedding": []}]}, True, "no_token", "no embedding; the body begins"),
        (json.dumps(VECTOR).encode()[:-1], True, "broken_stream", "not one JSON object"),
        ({"error": {"message": "no such API"}}, True, "sse_error", "no such API"),
    ],
)
def test_what_is_no_answer_fails(body: Any, embedding: bool, kind: str, said: str) -> None:
    failure = read(body, embedding=embedding).failure
    assert failure
    assert (failure.kind, failure.message[: len(said)]) == (kind, said)


def test_an_answer_without_usage_has_no_known_tokens() -> None:
    answer = read({"choices": [{"message": {"content": "a"}}]})
    assert (answer.failure, answer.output_tokens, answer.tokens_from) == (None, 0, "none")


def test_tokens_without_a_text_are_an_answer() -> None:
    body = {"choices": [{"text": "", "finish_reason": "length"}], "usage": USAGE}
    assert read(body).failure is None


def test_a_failure_of_the_exchange_stays() -> None:
    failed = Failure("timeout", "no complete answer")
    exchange = Exchange(sent_ns=1, failure=failed, ended=True)
    assert WholeAnswerReader(exchange, embedding=True).end().failure == failed


def test_bytes_are_dropped_once_they_are_read() -> None:
    exchange = exchange_of(json.dumps(VECTOR).encode())
    exchange.ended = False
    reader = WholeAnswerReader(exchange, embedding=True)
    assert reader.advance(9) == 0
    assert not reader.pieces
    exchange.ended = True
    assert reader.advance(9) == 0
    assert reader.pieces
    assert list(exchange.reads) == []
    assert reader.end().prompt_tokens == 7


def test_a_usage_that_is_no_json_is_none() -> None:
    body = b'{"usage": {"prompt_tokens: 7}, "data": [{"embedding": [0.5]}]}'
    answer = WholeAnswerReader(exchange_of(body), embedding=True).end()
    assert (answer.failure, answer.usage) == (None, {})


def test_what_it_unpacks_to_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servetwin.loadtest.stream.stream_reader.BODY_LIMIT", 10_000)
    body = gzip.compress(b" " * 10_001)
    answer = WholeAnswerReader(exchange_of(body, encoding="gzip"), embedding=False).end()
    assert answer.failure == Failure("broken_stream", "more than 0 MiB in one answer")
