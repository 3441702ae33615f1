"""An answer in one piece is distinguished from a short one and from one of a fast server."""

import pytest

from servetwin.loadtest.http.exchange import Exchange
from servetwin.loadtest.stream.buffered_answer import is_buffered
from servetwin.loadtest.stream.stream_reader import read_stream
from tests.support.loadtest_server import DONE, text, usage

MS = 1_000_000


def streamed(tokens: int, first_ms: float, gap_ms: float) -> bool:
    """Whether an answer of one event per token is taken for buffered."""
    stamps_ns = [round((first_ms + index * gap_ms) * MS) for index in range(tokens)]
    reads = [(stamp_ns, text("a")) for stamp_ns in stamps_ns]
    return is_buffered(read_stream(Exchange(0, [*reads, (stamps_ns[-1], DONE)])), 0)


@pytest.mark.parametrize(
    ("tokens", "first_ms", "gap_ms", "buffered"),
    [
        (16, 100, 0, True),
        (16, 21, 0, True),
        (1000, 5000, 0.02, True),
        (15, 100, 0, False),  # too few to tell
        (1000, 19, 0, False),  # here at once, buffered or not
        (16, 100, 0.3, False),  # 3,000 tokens/s after a long prompt
        (1000, 5000, 0.06, False),
        (16, 100, 20, False),
    ],
)
def test_streams(tokens: int, first_ms: float, gap_ms: float, buffered: bool) -> None:
    assert streamed(tokens, first_ms, gap_ms) is buffered


def test_one_event_with_all_tokens() -> None:
    stream = read_stream(Exchange(0, [(100 * MS, text("a b", "stop") + usage(16) + DONE)]))
    assert is_buffered(stream, 0)


@pytest.mark.parametrize(("tokens", "buffered"), [(1, False), (2, True)])
def test_an_object_instead_of_a_stream(tokens: int, buffered: bool) -> None:
    body = (text("a", "stop") + usage(tokens)).replace(b"data: ", b"").replace(b"\n\n", b"\n")
    assert is_buffered(read_stream(Exchange(0, [(5 * MS, body)])), 0) is buffered


def test_what_was_not_sent_or_not_answered_is_none() -> None:
    assert not is_buffered(read_stream(Exchange(0, [])), 0)
    assert not is_buffered(read_stream(Exchange(0, [(5, text("a", "stop") + usage(20))])), None)
