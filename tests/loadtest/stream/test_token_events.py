"""Token events: framing, counts without decoding, reading ahead, whole answers."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import httpx
import pytest
from httpx_sse import EventSource
from hypothesis import given
from hypothesis import strategies as st

from servetwin.loadtest.http.exchange import Exchange, Failure
from servetwin.loadtest.http.recorded_reads import RecordedReads
from servetwin.loadtest.options import LoadOptions
from servetwin.loadtest.plan.schedule import ClockZero, ScheduledRequest, build_schedule
from servetwin.loadtest.report.rows import Sending, request_rows
from servetwin.loadtest.run.worker_client import WorkerClient
from servetwin.loadtest.stream import stream_reader
from servetwin.loadtest.stream.event_framing import ErrorData, JsonLines, ServerSentEvents
from servetwin.loadtest.stream.read_ahead import ReadAhead
from servetwin.loadtest.stream.stream_reader import TokenStream, read_stream
from servetwin.loadtest.stream.token_events import take_event
from servetwin.loadtest.stream.whole_answer import WholeAnswer, WholeAnswerReader
from servetwin.workloads.request import Request
from tests.support.loadtest_server import cut_at, text
from tests.support.mock_endpoint import completions, evenly, mocked, plan

WORDS = st.sampled_from(
    ["a", "b", "", "text", "stop", '"', "\\", "\n", "€", "\u2028", '", "finish_reason": "stop']
) | st.text(max_size=3)  # fmt: skip
Shape = tuple[str, bool, str | None, dict[str, Any], dict[str, Any]]
"""Of an event: its channel, whether it is ASCII, its end, and more fields of it and its choice."""


def said(word: str, shape: Shape) -> bytes:
    channel, as_ascii, finish, more, extra = shape
    choice = {"text": word} if channel == "text" else {"delta": {channel: word}}
    choices = [{"index": 0, **choice, **extra, "finish_reason": finish}]
    event = {"id": "x", **more, "choices": choices}
    return json.dumps(event, ensure_ascii=as_ascii).encode(errors="replace")


SHAPES: st.SearchStrategy[Shape] = st.tuples(
    st.sampled_from(["text", "content", "reasoning", "role"]),
    st.booleans(),
    st.sampled_from([None, None, None, "stop"]),
    st.sampled_from([{}, {"usage": None}, {"usage": {"completion_tokens": 4}}, {"a": "b"}]),
    st.sampled_from([{}, {}, {"token_ids": [5]}]),
)
RAW = st.sampled_from(
    [b'{"choices": [{"text": "\xff"}]}', b'{"choices": [{"text": "\t"}]}', b"[DONE]", b"[" * 9999]
)


def of_shapes(shapes: tuple[Shape, Shape]) -> st.SearchStrategy[list[bytes]]:
    """Streams whose events alternate between two shapes, as they do where a server reasons."""
    payload = st.builds(said, WORDS, st.sampled_from(shapes))
    return st.lists(payload | payload | payload | RAW, max_size=12)


@given(payloads=st.tuples(SHAPES, SHAPES).flatmap(of_shapes))
def test_events_like_the_one_before_are_what_decoding_them_says(payloads: list[bytes]) -> None:
    """However odd the texts: with patterns and without, the same stream."""
    quickly, slowly = TokenStream(), TokenStream()
    for stamp_ns, payload in enumerate(payloads, start=1):
        take_event(quickly, stamp_ns, payload)
        take_event(slowly, stamp_ns, payload)
        slowly.pattern = None
    quickly.pattern = None
    assert quickly == slowly


@given(
    payloads=st.tuples(SHAPES, SHAPES).flatmap(of_shapes),
    others=st.sets(st.integers(1, 900), max_size=3),
)
def test_events_of_a_run_are_what_reading_each_says(
    payloads: list[bytes], others: set[int]
) -> None:
    """One event to a piece, but for some cuts that are missing and some that are more."""
    events = [b"data: %b\n\n" % payload for payload in payloads * 2]
    ends = set(accumulate(map(len, events)))
    pieces = list(cut_at(b"".join(events), ends ^ others))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stream_reader, "take_run", lambda *_: False)
        slowly = read_stream(exchange_of(*pieces))
    quickly = read_stream(exchange_of(*pieces))
    quickly.pattern = slowly.pattern
    assert quickly == slowly


def test_a_run_of_events_is_split_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    monkeypatch.setattr(stream_reader, "take_event", lambda *_: taken.append(1))
    reader = stream_reader.StreamReader(exchange := exchange_of(text("a")))
    take_event(reader.stream, 1, text("a").removeprefix(b"data: ").strip())
    reader.advance(1)
    for number in range(40):
        exchange.reads.add(2000 + number, text(f"t{number}"))  # type: ignore[attr-defined]
    assert reader.end().stamps_ns.tolist() == [1, *range(2000, 2040)]
    assert len(taken) == 1


def test_an_event_that_differs_in_its_text_alone_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[str] = []

    def loads(data: str) -> Any:
        decoded.append(data)
        return json.JSONDecoder().decode(data)

    monkeypatch.setattr("servetwin.loadtest.stream.token_events.json.loads", loads)
    words = ["a", "b", "c d", "€", 'with "quotes"', "e", "f"]
    stream = read_stream(Exchange(0, [(n, text(word)) for n, word in enumerate(words)]))
    assert stream.stamps_ns.tolist() == list(range(7))
    assert len(decoded) == 3


BODIES = st.lists(
    st.sampled_from(
        [b"data: a", b"data:b", b"data", b"data:  c", b"data: [DONE]", b"event: x", b"id: 1",
         b": ping", b":", "data: €".encode(), b"data: \xff", b"retry: 5", b"date: d"]
    ) | st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n"]),
    max_size=20,
).map(b"".join)  # fmt: skip


def by_httpx_sse(body: bytes) -> list[str]:
    """The data of its events, by an implementation that is not ours."""
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    response = httpx.Response(200, headers=headers, content=body)
    return [event.data for event in EventSource(response).iter_sse() if event.data]


@given(body=BODIES, cuts=st.sets(st.integers(1, 200), max_size=8))
def test_events_are_those_of_the_standard_however_they_are_cut(body: bytes, cuts: set[int]) -> None:
    framing = ServerSentEvents()
    found = [event for piece in cut_at(body, cuts) for _, event in framing.feed(piece)]
    found += [event for _, event in framing.end()]
    assert [event.decode(errors="replace") for event in found] == by_httpx_sse(body)


@given(
    lines=st.lists(st.sampled_from([b'{"a": 1}', b" {} ", b"", b"  "]), min_size=1, max_size=6),
    cuts=st.sets(st.integers(1, 60), max_size=8),
)
def test_lines_are_lines_however_they_are_cut(lines: list[bytes], cuts: set[int]) -> None:
    framing = JsonLines()
    body = b"\n".join(lines)
    found = [line for piece in cut_at(body, cuts) for _, line in framing.feed(piece)]
    found += [line for _, line in framing.end()]
    assert found == [line.strip() for line in lines if line.strip()]


@given(words=st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=9))
def test_an_event_ends_where_its_empty_line_does(words: list[bytes]) -> None:
    events = [b"data: " + word.hex().encode() + b"\n\n" for word in words]
    ends = [end for end, _ in ServerSentEvents().feed(b"".join(events))]
    assert ends == [*accumulate(map(len, events))]


class Watched(WorkerClient):
    """A client that lets its reader be seen."""

    @property
    def ahead(self) -> ReadAhead:
        return self._ahead


def test_answers_are_read_while_others_come() -> None:
    """Forty of fifty tokens in half a second, and one that keeps the test going long after."""
    with mocked(plan("slow-start:requests=1,extra_ms=900", ttft_ms=5, itl_ms=5)) as (server,):
        endpoint, trace = completions(server), evenly(40, 80, 50)

        async def main() -> tuple[Watched, int, list[Exchange]]:
            options = LoadOptions()
            schedule = build_schedule(trace, endpoint, options)
            async with Watched(endpoint, schedule, options) as client:
                await client.run(ClockZero.after(0.1))
                return client, len(client.ahead.unread), [*client.ahead.unread]

        client, answers, left = asyncio.run(main())
    assert answers <= 3
    assert sum(len(list(exchange.reads)) for exchange in left) < 40 * 50 / 10
    rows = client.result().rows
    assert [row["output_tokens"] for row in rows] == [50] * 40
    assert all((row["chunk_s"][1:] >= row["chunk_s"][:-1]).all() for row in rows)


def recorded(events: int) -> Exchange:
    reads = RecordedReads()
    for index in range(events):
        reads.add(index, text(f"t{index}"))
    return Exchange(0, reads)


def test_what_is_read_of_an_answer_is_given_up() -> None:
    """Also of one still under way; its reader goes on where it stood."""

    async def main() -> ReadAhead:
        ahead = ReadAhead()
        for exchange in exchanges:
            ahead.begin(exchange)
        with ahead.running():
            await asyncio.sleep(0.3)
        return ahead

    exchanges = [recorded(500) for _ in range(4)]
    for exchange in exchanges[:3]:
        exchange.ended = True
    ahead = asyncio.run(main())
    assert [list(exchange.reads) for exchange in exchanges] == [[]] * 4
    reads = exchanges[3].reads
    assert isinstance(reads, RecordedReads)
    reads.add(500, text("t500"))
    assert (len(reads), [*reads]) == (501, [(500, text("t500"))])
    assert [len(stream.stamps_ns) for stream in streams(ahead, exchanges)] == [500] * 3 + [501]


def streams(ahead: ReadAhead, exchanges: list[Exchange]) -> Iterator[TokenStream]:
    return (ahead.stream(exchange) for exchange in exchanges)


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
    assert (answer.last_ns, len(answer.stamps_ns)) == (2000, 0)
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


def test_usage_in_an_event_counts_all_so_far() -> None:
    """An event holds what its usage has more than the one before; one without more is no token."""
    stream = TokenStream()
    for stamp_ns, (word, made) in enumerate([("", 0), ("a b", 2), ("", 2), ("c d e", 5), ("f", 6)]):
        event = {"choices": [{"text": word}], "usage": {"completion_tokens": made}}
        take_event(stream, stamp_ns, json.dumps(event).encode())
    assert (stream.stamps_ns.tolist(), stream.tokens) == ([1, 3, 4], [2, 3, 1])
    assert (stream.silent, [*stream.reported]) == ([], [True] * 3)


@pytest.mark.parametrize(
    ("names", "is_error"), [(("error", "token"), False), (("token", "error"), True)]
)
def test_the_last_name_of_an_event_counts(names: tuple[str, str], is_error: bool) -> None:
    body = "".join(f"event: {name}\n" for name in names) + "data: 1\n\n"
    ((_, payload),) = ServerSentEvents().feed(body.encode())
    assert isinstance(payload, ErrorData) is is_error
