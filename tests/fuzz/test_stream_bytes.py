"""A fixed budget of the fuzzer of streams, and what its inputs are too short for."""

import gzip
import tracemalloc
import zlib

import httpx
import pytest

from servetwin.loadtest.http.exchange import Exchange, Failure
from servetwin.loadtest.http.http_parser import HEAD_LIMIT, ResponseParser
from servetwin.loadtest.http.recorded_reads import RecordedReads
from servetwin.loadtest.stream import stream_reader
from servetwin.loadtest.stream.stream_reader import read_stream
from tests.fuzz.campaign import Budget, generator, run
from tests.fuzz.stream_bytes import check, draw, parsed
from tests.support.loadtest_server import text

CASES = 1500
SEED = 15
MIB = 1 << 20


@pytest.mark.slow
def test_the_budget() -> None:
    assert run("stream_bytes", draw, check, SEED, Budget(cases=CASES)) == CASES


def test_the_inputs_are_of_all_kinds() -> None:
    """Some are whole and right, some are cut, some are no HTTP."""
    ends = [parsed([draw(generator(SEED, case))])[1:] for case in range(300)]
    assert sum(complete for _, complete, _ in ends) > 150
    assert sum(wrong for _, _, wrong in ends) > 30
    assert any(head is None for head, _, _ in ends)


@pytest.mark.parametrize(
    "endless",
    [
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
    ],
)
def test_an_endless_line_is_cut_off(endless: bytes) -> None:
    parser = ResponseParser()
    parser.feed(endless)
    for _ in range(HEAD_LIMIT // 1024 + 1):
        parser.feed(b"a" * 1024)
    assert "longer than" in parser.error
    tracemalloc.start()
    for _ in range(100):
        parser.feed(b"a" * 65_536)
    assert tracemalloc.get_traced_memory()[1] < MIB
    tracemalloc.stop()


@pytest.mark.parametrize("pieces", [1, 50])
def test_what_a_compressed_answer_unpacks_to_is_limited(
    monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    """A thousandth of what it unpacks to; the limit and one piece are all that is held."""
    monkeypatch.setattr(stream_reader, "BODY_LIMIT", MIB)
    bomb = gzip.compress(text("a") + b"data: " + b" " * 64 * MIB)
    size = -(-len(bomb) // pieces)
    reads = RecordedReads()
    for number, at in enumerate(range(0, len(bomb), size)):
        reads.add(number, bomb[at : at + size])
    exchange = Exchange(0, reads, headers=httpx.Headers({"content-encoding": "gzip"}))
    tracemalloc.start()
    stream = read_stream(exchange)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert stream.failure == Failure("broken_stream", "more than 1 MiB in one answer")
    assert peak_bytes < 16 * MIB


def test_a_broken_compression_is_a_failure() -> None:
    body = bytearray(zlib.compress(text("a", "stop") * 20))
    body[20:30] = b"\xff" * 10
    headers = httpx.Headers({"content-encoding": "deflate"})
    stream = read_stream(Exchange(0, [(1, bytes(body))], headers=headers))
    assert stream.failure is not None
    assert stream.failure.kind == "broken_stream"


def test_deep_and_long_json_is_a_failure_and_no_more() -> None:
    for payload in (b"[" * MIB, b'{"a":' * MIB, b"9" * MIB, b'{"id": ' + b"9" * 5000 + b"}"):
        stream = read_stream(Exchange(0, [(1, b"data: " + payload + b"\n\n")]))
        assert stream.failure is not None
        assert len(stream.failure.message) < 500
