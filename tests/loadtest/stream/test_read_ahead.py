"""Recorded answers: framed as the standard says, read in any steps, and read while they come."""

import asyncio
import json
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import httpx
import pytest
from httpx_sse import EventSource
from hypothesis import given
from hypothesis import strategies as st

from loadtest.http.exchange import Exchange, Failure
from loadtest.http.recorded_reads import RecordedReads
from loadtest.options import LoadOptions
from loadtest.plan.schedule import ClockZero, build_schedule
from loadtest.run.worker_client import WorkerClient
from loadtest.stream.event_framing import JsonLines, ServerSentEvents
from loadtest.stream.read_ahead import ReadAhead
from loadtest.stream.stream_reader import StreamReader, TokenStream, read_stream
from loadtest.stream.token_events import take_event
from tests.support.loadtest_server import DONE, delta, text, usage
from tests.support.mock_endpoint import completions, evenly, mocked, plan

BODIES = st.lists(
    st.sampled_from(
        [b"data: a", b"data:b", b"data", b"data:  c", b"data: [DONE]", b"event: x", b"id: 1",
         b": ping", b":", "data: €".encode(), b"data: \xff", b"retry: 5", b"date: d"]
    ) | st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n"]),
    max_size=20,
).map(b"".join)  # fmt: skip


def pieces(body: bytes, cuts: set[int]) -> list[bytes]:
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(body)), len(body)]
    return [body[start:end] for start, end in pairwise(edges)]


def by_httpx_sse(body: bytes) -> list[str]:
    """The data of its events, by an implementation that is not ours."""
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    response = httpx.Response(200, headers=headers, content=body)
    return [event.data for event in EventSource(response).iter_sse() if event.data]


@given(body=BODIES, cuts=st.sets(st.integers(1, 200), max_size=8))
def test_events_are_those_of_the_standard_however_they_are_cut(body: bytes, cuts: set[int]) -> None:
    framing = ServerSentEvents()
    found = [event for piece in pieces(body, cuts) for _, event in framing.feed(piece)]
    found += [event for _, event in framing.end()]
    assert [event.decode(errors="replace") for event in found] == by_httpx_sse(body)


@given(
    lines=st.lists(st.sampled_from([b'{"a": 1}', b" {} ", b"", b"  "]), min_size=1, max_size=6),
    cuts=st.sets(st.integers(1, 60), max_size=8),
)
def test_lines_are_lines_however_they_are_cut(lines: list[bytes], cuts: set[int]) -> None:
    framing = JsonLines()
    body = b"\n".join(lines)
    found = [line for piece in pieces(body, cuts) for _, line in framing.feed(piece)]
    found += [line for _, line in framing.end()]
    assert found == [line.strip() for line in lines if line.strip()]


@given(words=st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=9))
def test_an_event_ends_where_its_empty_line_does(words: list[bytes]) -> None:
    events = [b"data: " + word.hex().encode() + b"\n\n" for word in words]
    ends = [end for end, _ in ServerSentEvents().feed(b"".join(events))]
    assert ends == [*accumulate(map(len, events))]


@given(
    data=st.lists(st.binary(min_size=1, max_size=5), max_size=8),
    start=st.integers(0, 9),
    most=st.integers(0, 9),
)
def test_a_span_is_the_pieces_themselves(data: list[bytes], start: int, most: int) -> None:
    reads = RecordedReads()
    for stamp_ns, piece in enumerate(data):
        reads.add(stamp_ns, piece)
    parts = [(p.stamps_ns[0], p.data) for p in reads.span(start, most).pieces()]
    assert parts == list(enumerate(data))[start : start + most]


WORDS = st.sampled_from(
    ["a", "b", "", "text", "stop", '"', "\\", "\n", "€", "\u2028", '", "finish_reason": "stop']
) | st.text(max_size=3)  # fmt: skip


Shape = tuple[str, bool, str | None, dict[str, Any], dict[str, Any]]
"""Of an event: its channel, whether it is ASCII, its end, and more fields of it and its choice."""


def said(word: str, shape: Shape) -> bytes:
    channel, as_ascii, finish, more, told = shape
    choice = {"text": word} if channel == "text" else {"delta": {channel: word}}
    choices = [{"index": 0, **choice, **told, "finish_reason": finish}]
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


def test_an_event_that_differs_in_its_text_alone_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[str] = []

    def loads(data: str) -> Any:
        decoded.append(data)
        return json.JSONDecoder().decode(data)

    monkeypatch.setattr("loadtest.stream.token_events.json.loads", loads)
    words = ["a", "b", "c d", "€", 'with "quotes"', "e", "f"]
    stream = read_stream(Exchange(0, [(n, text(word)) for n, word in enumerate(words)]))
    assert stream.stamps_ns == list(range(7))
    assert len(decoded) == 3


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
    at_once = Exchange(0, list(enumerate(pieces(b"".join(events), cuts))), failure=failure)
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


def test_what_is_read_of_an_ended_answer_is_given_up() -> None:
    """An answer still under way keeps its bytes; whoever ends it reads on where it stood."""

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
    assert [len(list(exchange.reads)) for exchange in exchanges] == [0, 0, 0, 500]
    assert [len(stream.stamps_ns) for stream in streams(ahead, exchanges)] == [500] * 4


def streams(ahead: ReadAhead, exchanges: list[Exchange]) -> Iterator[TokenStream]:
    return (ahead.stream(exchange) for exchange in exchanges)
