"""Counts that cannot be true are not used; those that may be true are."""

import pytest

from servetwin.loadtest.http.exchange import Exchange
from servetwin.loadtest.stream.doubts import Doubt, drop_doubted_usage, is_buffered
from servetwin.loadtest.stream.stream_reader import TokenStream, read_stream
from tests.support.loadtest_server import DONE, delta, event, text, usage

THREE = (text("a"), text("b"), text("c", "length"))


def read(*segments: bytes) -> TokenStream:
    return read_stream(Exchange(0, list(enumerate(segments, 1))))


def counting(tokens: int) -> bytes:
    return event(choices=[{"text": "a"}], usage={"completion_tokens": tokens})


@pytest.mark.parametrize(
    ("segments", "asked", "doubt", "output_tokens", "tokens_from"),
    [
        ((*THREE, DONE), 3, None, 3, "events"),
        ((*THREE, usage(3), DONE), 3, None, 3, "usage"),
        ((*THREE, usage(-1), DONE), 3, "negative", 3, "events"),
        ((*THREE, usage(0), DONE), 3, "fewer", 3, "events"),
        ((*THREE, usage(2), DONE), 3, "fewer", 3, "events"),
        ((*THREE, usage(10**30), DONE), 3, "more", 3, "events"),
        # more than max_tokens allowed: only what the stream shows is believed
        ((text("abcdef"), text("ghi", "stop"), usage(9), DONE), 3, "more", 2, "events"),
        ((text("many words of text"),) * 16 + (usage(40), DONE), 16, "more", 16, "events"),
        ((text("a"), text("b"), text("c"), text("d"), usage(4), DONE), 3, None, 4, "usage"),
        ((text("ab", token_ids=[1, 2]), text("c"), usage(3), DONE), 2, None, 3, "usage"),
        ((text("ab", token_ids=[1, 2]), text("c"), usage(4), DONE), 2, "more", 3, "events"),
        ((text("abc", token_ids=[1, 2, 3]), usage(3), DONE), 2, None, 3, "usage"),
        # more than the text can hold, but no more than was asked for: tokens without text
        ((*THREE, usage(50), DONE), 50, None, 50, "usage"),
        ((text(""), text("a", "stop"), usage(1), DONE), 3, None, 1, "usage"),
        ((text(""), text(""), text("a", "stop"), usage(2), DONE), 3, None, 2, "usage"),
        ((delta(content="a"), delta("stop"), usage(1), DONE), 3, None, 1, "usage"),
        ((counting(1), counting(2), DONE), 2, None, 2, "usage"),
        ((counting(1), counting(10**12), counting(3), DONE), 3, None, 3, "usage"),
        ((counting(1), counting(10**12), DONE), 3, "more", 2, "events"),
        ((text("a", token_ids=[1, 2]), usage(0), DONE), 3, "fewer", 2, "token_ids"),
    ],
)
def test_output_tokens(
    segments: tuple[bytes, ...],
    asked: int,
    doubt: Doubt | None,
    output_tokens: int,
    tokens_from: str,
) -> None:
    stream = read(*segments)
    assert drop_doubted_usage(stream, asked) == doubt
    assert (stream.output_tokens, stream.tokens_from) == (output_tokens, tokens_from)
    assert stream.prompt_tokens in (7, None)


@pytest.mark.parametrize("usage_tokens", [6, 3])
def test_only_the_first_of_two_choices_is_read(usage_tokens: int) -> None:
    """Their tokens come in turns; the usage may be of both, and is of neither surely."""
    pairs = [text(f"{n}", index=index) for n in range(3) for index in (0, 1)]
    together = event(choices=[{"text": "d", "index": 1}, {"text": "d", "index": 0}])
    ends = [text("", "stop", index=1), text("", "stop", index=0)]
    stream = read(*pairs, together, *ends, usage(usage_tokens), DONE)
    assert drop_doubted_usage(stream, 9) == "choices"
    assert (stream.output_tokens, stream.tokens_from) == (4, "events")
    assert stream.stamps_ns.tolist() == [1, 3, 5, 7]
    assert stream.failure is None


@pytest.mark.parametrize(
    ("prompt", "cached", "doubt", "believed"),
    [
        (40, 32, None, (40, 32)),
        (40, 40, None, (40, 40)),
        (0, 0, None, (0, 0)),
        (-1, 0, "prompt", (None, 0)),
        (10**12, 5, "prompt", (None, 5)),
        (40, 41, "cached", (40, 0)),
        (40, -2, "cached", (40, 0)),
    ],
)
def test_prompt_tokens(
    prompt: int, cached: int, doubt: Doubt | None, believed: tuple[int | None, int]
) -> None:
    stream = read(*THREE, usage(3, prompt, cached), DONE)
    assert drop_doubted_usage(stream, 3) == doubt
    assert (stream.prompt_tokens, stream.cached_tokens) == believed
    assert stream.output_tokens == 3


def test_a_count_of_one_event_cannot_hold_more_than_all() -> None:
    stream = read(counting(10**12), counting(2), DONE)
    assert drop_doubted_usage(stream, 2) is None
    assert (stream.output_tokens, stream.first_chunk_tokens) == (2, 1)
    stream = read(counting(3), text("b", "stop"), usage(2), DONE)
    assert drop_doubted_usage(stream, 9) is None
    assert (stream.output_tokens, stream.first_chunk_tokens) == (2, 1)


def test_true_is_no_count() -> None:
    stream = read(*THREE, event(choices=[], usage={"completion_tokens": True}), DONE)
    assert drop_doubted_usage(stream, 3) is None
    assert (stream.output_tokens, stream.tokens_from) == (3, "events")


MS = 1_000_000


def streamed(tokens: int, first_ms: float, gap_ms: float) -> bool | None:
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
        (16, 100, 0.049, True),  # 15 gaps between 16 tokens: 50 us each are just possible
        (15, 100, 0, False),  # too few to tell
        (1000, 19, 0, False),  # here at once, buffered or not
        (16, 100, 0.3, False),  # 3,000 tokens/s after a long prompt
        (1000, 5000, 0.06, False),
        (16, 100, 20, False),
    ],
)
def test_streams(tokens: int, first_ms: float, gap_ms: float, buffered: bool) -> None:
    assert streamed(tokens, first_ms, gap_ms) is buffered


@pytest.mark.parametrize(
    ("begin_ms", "end_ms", "buffered"),
    [
        (10, 99, None),  # the client stood still, and read all that had come meanwhile
        (85, 101, None),
        (10, 24.9, True),  # 15 tokens need more than 14.9 ms
        (-50, 0, True),  # before it was sent
        (101, 200, True),
    ],
)
def test_a_client_that_stood_still_cannot_tell(
    begin_ms: float, end_ms: float, buffered: bool | None
) -> None:
    reads = [(100 * MS, text("a"))] * 16
    stream = read_stream(Exchange(0, [*reads, (100 * MS, DONE)]))
    stalls = [(-90 * MS, -80 * MS), (round(begin_ms * MS), round(end_ms * MS))]
    assert is_buffered(stream, 0, stalls) is buffered


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
