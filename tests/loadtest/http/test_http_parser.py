"""HTTP/1.1: how the network cuts the bytes changes nothing; connections that end."""

import asyncio
import socket
import weakref
from dataclasses import dataclass
from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.loadtest.http.connection import Connection
from servetwin.loadtest.http.http_parser import HEAD_LIMIT, ResponseParser
from servetwin.loadtest.http.recorded_reads import RecordedReads
from servetwin.loadtest.http.transport import StampingTransport
from tests.support.raw_server import (
    CHUNKED,
    HELLO,
    Caller,
    Handler,
    numbered,
    open_connections,
    run_story,
    says,
)

OK = b"HTTP/1.1 200 OK\r\n"


def chunked(pieces: list[bytes], extension: bytes = b"", trailers: bytes = b"") -> bytes:
    chunks = [b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces if piece]
    return b"".join(chunks) + b"0" + extension + b"\r\n" + trailers + b"\r\n"


@dataclass(frozen=True)
class Outcome:
    status: int | None
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes
    complete: bool
    wrong: bool
    stays: bool


def outcome(data: bytes, cuts: list[int], closes: bool = True) -> Outcome:
    parser = ResponseParser()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pairs = pairwise(places)
    body = b"".join(parser.feed(data[start:end]) for start, end in pairs)
    stays = parser.connection_stays
    if closes:
        parser.end()
    head = parser.head
    fields = tuple(head.fields) if head else ()
    status = head.status if head else None
    return Outcome(status, fields, body, parser.complete, bool(parser.error), stays)


CUTS = st.lists(st.integers(0, 400), max_size=12)
PIECES = st.lists(st.binary(max_size=40), max_size=6)
BEFORE = st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 E\r\nA: b\r\n\r\n"])


@given(PIECES, CUTS, BEFORE, st.sampled_from([b"", b";a=b", b' ;a="b c"']), st.booleans())
def test_a_chunked_body_however_it_is_cut(
    pieces: list[bytes], cuts: list[int], before: bytes, extension: bytes, trailers: bool
) -> None:
    tail = b"X: y\r\nZ: \r\n" if trailers else b""
    body = chunked(pieces, extension, tail)
    data = before + OK + b"Transfer-Encoding: Chunked\r\nA:  b \r\n\r\n" + body
    fields = ((b"Transfer-Encoding", b"Chunked"), (b"A", b"b"))
    assert outcome(data, cuts) == Outcome(200, fields, b"".join(pieces), True, False, True)


@given(st.binary(max_size=90), CUTS, st.binary(max_size=3))
def test_a_body_with_a_length_however_it_is_cut(
    body: bytes, cuts: list[int], surplus: bytes
) -> None:
    data = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body + surplus
    found = outcome(data, cuts)
    assert (found.status, found.body, found.complete, found.wrong) == (200, body, True, False)
    assert found.stays == (not surplus.strip(b"\r\n"))  # RFC 9112, 2.2: an empty line is no fault


@given(st.binary(max_size=90), CUTS)
def test_a_body_without_a_length_ends_with_the_connection(body: bytes, cuts: list[int]) -> None:
    found = outcome(OK + b"\r\n" + body, cuts)
    assert found == Outcome(200, (), body, True, False, False)
    assert not outcome(OK + b"\r\n" + body, cuts, closes=False).complete


ANY = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda start, junk, rest: start + junk + rest,
        st.sampled_from(
            [b"", OK, OK + b"Transfer-Encoding: chunked\r\n\r\n", b"HTTP/1.1 204 N\r\n"]
        ),
        st.sampled_from(
            [b"", b"3\r\nabc\r\n", b"3\r\nabcd", b"x\r\n", b"\r\r\n", b"\r", b" a\r\n"]
        ),
        st.one_of(st.binary(max_size=30), st.just(b"0\r\n\r\n"), st.just(b"0\r\nA: b\r\n\r\n")),
    ),
)


@given(ANY, CUTS)
def test_what_is_wrong_is_wrong_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    assert outcome(data, cuts) == outcome(data, [])
    every_byte = outcome(data, [*range(len(data))])
    assert every_byte == outcome(data, [])


LENGTH_3 = b"Content-Length: 3\r\n"
MALFORMED: dict[str, tuple[bytes, str]] = {
    "not HTTP": (b"SSH-2.0-x\r\n", "not HTTP/1.1 (Expected HTTP/, RTSP/ or ICE/): b'SSH-2.0-x"),
    "HTTP/2": (b"HTTP/2 200\r\n\r\n", "not HTTP/1.1 (Expected dot): b'HTTP/2 200"),
    "status": (b"HTTP/1.1 OK\r\n\r\n", "not HTTP/1.1 (Invalid status code): b'HTTP/1.1 OK"),
    "field": (
        OK + b"no colon\r\n\r\n",
        "not HTTP/1.1 (Invalid header token): b'",
    ),
    "space before colon": (
        OK + b"A : b\r\n\r\n",
        "not HTTP/1.1 (Invalid header token): b'",
    ),
    "length": (
        OK + b"Content-Length: -1\r\n\r\n",
        "not HTTP/1.1 (Invalid character in Content-Length): b'",
    ),
    "two lengths": (
        OK + LENGTH_3 + b"Content-Length: 4\r\n\r\n",
        "not HTTP/1.1 (Duplicate Content-Length): b'",
    ),
    "coding": (OK + b"Transfer-Encoding: gzip\r\n\r\n", "Transfer-Encoding b'gzip' is not"),
    "chunk size": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        "not HTTP/1.1 (Invalid character in chunk size): b'",
    ),
    "long chunk": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        "not HTTP/1.1 (Expected LF after chunk data): b'",
    ),
    "protocol": (b"HTTP/1.1 101 Up\r\n\r\n", "the server switches to a protocol"),
    "endless head": (
        OK + b"A: " + b"x" * HEAD_LIMIT,
        "the head, chunk size or trailers are longer than ",
    ),
    "nothing": (b"", "the connection was closed without an answer"),
    "half a head": (OK, "the connection was closed within the head of the answer"),
    "half a body": (
        OK + LENGTH_3 + b"\r\nab",
        "the connection was closed with 1 bytes of the body missing",
    ),
    "no last chunk": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
        "the connection was closed before the last chunk of the body",
    ),
}


@pytest.mark.parametrize(("data", "message"), MALFORMED.values(), ids=MALFORMED)
def test_what_is_wrong_is_said(data: bytes, message: str) -> None:
    parser = ResponseParser()
    parser.feed(data)
    parser.end()
    assert parser.error.startswith(message)
    assert not parser.complete


@pytest.mark.parametrize(
    ("data", "stays"),
    [
        (OK + b"Content-Length: 0\r\n\r\n", True),
        (OK + b"Content-Length: 0\r\nConnection: Keep-Alive, Close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", True),
        (OK + LENGTH_3 + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 200\nContent-Length: 0\nFolded: a\n  b\n\n", True),
    ],
)
def test_whether_the_connection_stays(data: bytes, stays: bool) -> None:
    found = outcome(data, [])
    assert (found.complete, found.stays) == (True, stays)
    assert dict(found.fields).get(b"Folded") in (None, b"a  b")


def test_nothing_is_left_for_the_garbage_collection() -> None:
    """It is off in a load test, and every answer has a parser."""
    for data in (OK + LENGTH_3 + b"\r\nabc", OK + b"\r\nabc", OK, b"SSH"):
        parser = ResponseParser()
        parser.feed(data)
        parser.end()
        there = weakref.ref(parser)
        del parser
        assert there() is None


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


def test_one_after_the_other_share_a_connection() -> None:
    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        bodies = [(await client.get(f"{url}/{index}")).text for index in range(3)]
        assert bodies == ["1", "2", "3"]
        assert (await client.get(f"{url}/last")).text == "last"
        assert (await client.get(f"{url}/again")).text == "1"

    assert len(run_story(numbered, story)) == 2


def test_the_connection_used_last_is_used_next() -> None:
    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        await asyncio.gather(*(client.get(f"{url}/first") for _ in range(4)))
        assert open_connections(transport) == 4
        for index in range(4):
            await client.get(f"{url}/{index}")

    callers = run_story(numbered, story)
    assert sorted(len(caller.requests) for caller in callers) == [1, 1, 1, 5]


def test_old_connections_are_closed_and_not_used() -> None:
    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        await asyncio.gather(*(client.get(url) for _ in range(3)))
        await asyncio.sleep(0.1)
        assert (await client.get(url)).text == "1"
        await asyncio.sleep(0)
        assert open_connections(transport) == 1

    assert len(run_story(numbered, story, keepalive_s=0.05)) == 4


def test_a_body_that_is_not_read_closes_its_connection() -> None:
    endless = says(CHUNKED, *[b"1\r\na\r\n"] * 5)

    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        async with client.stream("GET", url) as answer:
            async for piece in answer.aiter_raw():
                assert piece == b"a"
                break
        await asyncio.sleep(0.02)
        assert open_connections(transport) == 0

    run_story(endless, story)


async def all_closed(transport: StampingTransport) -> None:
    """Wait for the end of every connection; the story fails where one stays open."""
    pools = transport._pools.values()
    await asyncio.gather(*(connection.closed for pool in pools for connection in pool._open))
    assert open_connections(transport) == 0


def test_a_request_that_is_given_up_closes_its_connection() -> None:
    """Cancelled before the head, and within the body."""

    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.get(url)
            await all_closed(transport)

    async def slow(caller: Caller) -> None:
        await caller.ask()
        await caller.say(*parts.pop())
        await caller.ask()

    parts = [(CHUNKED, b"1\r\na\r\n"), ()]
    assert len(run_story(slow, story)) == 2


def test_an_unasked_answer_ends_the_connection() -> None:
    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        for _ in range(2):
            assert (await client.get(url)).text == "hello"
            await all_closed(transport)

    assert len(run_story(says(HELLO, b"HTTP/1.1 408 Too late\r\n\r\n"), story)) == 2


def closing(after_s: float) -> Handler:
    """Takes the second request of a connection and hangs up on it."""

    async def handle(caller: Caller) -> None:
        await caller.ask()
        await caller.say(HELLO)
        await caller.ask()
        await asyncio.sleep(after_s)

    return handle


@pytest.mark.parametrize(
    ("after_s", "callers", "resent"),
    [
        pytest.param(0.0, 2, 1, id="crossed", marks=pytest.mark.quiet),
        pytest.param(0.2, 1, 0, id="worked on"),
    ],
)
def test_only_a_request_that_crossed_the_close_is_sent_again(
    after_s: float, callers: int, resent: int
) -> None:
    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        await client.get(url)
        if resent:
            assert (await client.get(url)).text == "hello"
        else:
            with pytest.raises(httpx.RemoteProtocolError, match="without an answer"):
                await client.get(url)
        assert transport.resent == resent

    assert len(run_story(closing(after_s), story)) == callers


def test_no_request_is_sent_again_on_a_fresh_connection() -> None:
    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(url)
        assert transport.resent == 0

    assert len(run_story(says(hangs_up=True), story)) == 1


def test_nodelay_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    made = Connection.connection_made

    def look(connection: Connection, transport: asyncio.BaseTransport) -> None:
        plug = transport.get_extra_info("socket")
        found.append(plug.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        made(connection, transport)

    monkeypatch.setattr(Connection, "connection_made", look)

    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        await client.get(url)

    run_story(numbered, story)
    assert found
    assert all(found)
