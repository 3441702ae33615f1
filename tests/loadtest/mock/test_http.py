"""The mock's HTTP: requests however they arrive, and answers to good and bad ones."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.loadtest.mock.http import MAX_HEAD_BYTES, RequestHead, RequestReader, on_the_wire
from servetwin.loadtest.mock.mock_answer import MockAnswer, TimedWrite
from servetwin.loadtest.mock.parsed_request import BadRequest
from tests.support.mock_endpoint import BODY, TWO, spoken


@given(st.sets(st.integers(1, len(TWO) - 1), max_size=8))
def test_cuts_change_no_request(cuts: set[int]) -> None:
    reader, found = RequestReader(), list[tuple[RequestHead, bytes]]()
    for start, end in pairwise([0, *sorted(cuts), len(TWO)]):
        reader.feed(TWO[start:end])
        while request := reader.take():
            found.append(request)
    first, second = found
    assert (first[0].method, first[0].path, first[1]) == ("POST", "/v1/completions", BODY)
    assert (second[0].method, second[0].path, second[1]) == ("GET", "/health", b"")
    assert (first[0].keep_alive, second[0].keep_alive) == (True, False)
    assert reader.empty


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno header\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"x" * (MAX_HEAD_BYTES + 1), 431),
    ],
)
def test_what_is_no_request(data: bytes, status: int) -> None:
    reader = RequestReader()
    reader.feed(data)
    with pytest.raises(BadRequest) as caught:
        reader.take()
    assert caught.value.status == status
    answer = spoken(data)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"Connection: close" in answer


def test_on_the_wire_in_chunks() -> None:
    answer = MockAnswer(200, {"A": "b"}, [TimedWrite(0.1, b"x" * 17, 1), TimedWrite(0.2, b"y")])
    assert [*on_the_wire(answer, keep_alive=True)] == [
        TimedWrite(0.0, b"HTTP/1.1 200 OK\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n"),
        TimedWrite(0.1, b"11\r\n" + b"x" * 17 + b"\r\n", 1),
        TimedWrite(0.2, b"1\r\ny\r\n"),
        TimedWrite(0.2, b"0\r\n\r\n"),
    ]
