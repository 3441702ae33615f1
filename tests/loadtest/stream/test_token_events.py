"""Events that differ in their text alone are counted without decoding them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.loadtest.http.exchange import Exchange
from servetwin.loadtest.stream.stream_reader import TokenStream, read_stream
from servetwin.loadtest.stream.token_events import take_event
from tests.support.loadtest_server import text

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
    assert stream.stamps_ns == list(range(7))
    assert len(decoded) == 3
