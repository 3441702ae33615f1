"""Events are those of the standard, however the network cut them."""

from itertools import accumulate

import httpx
from httpx_sse import EventSource
from hypothesis import given
from hypothesis import strategies as st

from servetwin.loadtest.stream.event_framing import JsonLines, ServerSentEvents
from tests.support.loadtest_server import cut_at

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
