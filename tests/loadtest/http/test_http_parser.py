"""Laws of the HTTP/1.1 parser: how the network cuts the bytes changes nothing."""

import weakref
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.loadtest.http.http_parser import HEAD_LIMIT, ResponseParser

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
