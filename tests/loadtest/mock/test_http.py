"""The mock's HTTP: requests however they arrive, and bytes that are no request."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.mock_endpoint import TWO, spoken


@settings(max_examples=5)
@given(st.sets(st.integers(1, len(TWO) - 1), max_size=8))
def test_cuts_change_no_answer(cuts: set[int]) -> None:
    ends = [*sorted(cuts), len(TWO)]
    pieces = [TWO[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    answers = spoken(*pieces)
    assert answers.count(b"HTTP/1.1 200 ") == 2
    assert answers == spoken(TWO)


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nno header\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ],
)
def test_what_is_no_request(data: bytes) -> None:
    answer = spoken(data)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in answer


def test_an_answer_comes_in_chunks() -> None:
    head, _, body = spoken(TWO).partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    size, _, rest = body.partition(b"\r\n")
    assert rest[int(size, 16) :].startswith(b"\r\n0\r\n\r\nHTTP/1.1 200 ")
