"""Events out of a body, however the network cut it: server-sent events, or lines of JSON.

Server-sent events as WHATWG's HTML standard has them ("Interpreting an event stream"), of which an
event's data is all that matters here.
"""

from collections.abc import Iterator
from typing import Protocol

FramedEvent = tuple[int, bytes]
"""Where it ends in the bytes that were fed last, and its payload."""


class Framing(Protocol):
    """Takes a body in pieces and gives back the events in it; those without a payload are none."""

    def feed(self, data: bytes) -> Iterator[FramedEvent]:
        """The events that end in ``data``; to be taken before more is fed."""

    def end(self) -> Iterator[FramedEvent]:
        """Those that end with the body."""


def framing_of(start: bytes) -> Framing:
    """That of a body which begins so: with a brace, lines of JSON; else server-sent events."""
    return JsonLines() if start.lstrip().startswith(b"{") else ServerSentEvents()


class JsonLines:
    """One payload per line; the last needs no line end."""

    def __init__(self) -> None:
        self._cut = _Cut(b"\n")

    def feed(self, data: bytes) -> Iterator[FramedEvent]:
        """Lines that are whole now."""
        for end, line in self._cut.feed(data):
            if payload := line.strip():
                yield end, payload

    def end(self) -> Iterator[FramedEvent]:
        """The last line."""
        return self.feed(b"\n")


class ServerSentEvents:
    """One payload per event: its data. An event that no empty line ends is dropped.

    Carriage returns become line feeds, so where there are some, places are not exact.
    """

    def __init__(self) -> None:
        self._cut = _Cut(b"\n\n")
        self._half_line_end = b""

    def feed(self, data: bytes) -> Iterator[FramedEvent]:
        """Events that are whole now."""
        if self._half_line_end or b"\r" in data:
            data = self._with_line_feeds(self._half_line_end + data)
        for end, event in self._cut.feed(data):
            if event.startswith(b"data: ") and b"\n" not in event:
                yield end, event[6:]
            elif payload := _payload(event):
                yield end, payload

    def end(self) -> Iterator[FramedEvent]:
        """One that ended with what might have been half a line end."""
        return self.feed(b"\n" if self._half_line_end else b"")

    def _with_line_feeds(self, data: bytes) -> bytes:
        self._half_line_end = data[-1:] if data.endswith(b"\r") else b""
        whole = data.removesuffix(b"\r")
        return whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


class _Cut:
    """Cuts at a separator; the cost is linear in the bytes, however many pieces they come in."""

    def __init__(self, separator: bytes) -> None:
        self._separator = separator
        self._rest: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[FramedEvent]:
        """What lies between separators, as far as the last of them."""
        before = self._rest[-1][-1:] if self._rest else b""  # no separator is longer than two
        if data:
            self._rest.append(data)
        if self._separator not in before + data:
            return
        at = len(data) - sum(map(len, self._rest))
        *pieces, rest = b"".join(self._rest).split(self._separator)
        self._rest = [rest] if rest else []
        for piece in pieces:
            at += len(piece) + len(self._separator)
            yield at, piece


def _payload(event: bytes) -> bytes:
    fields = (line.partition(b":") for line in event.split(b"\n"))
    return b"\n".join(value.removeprefix(b" ") for name, _, value in fields if name == b"data")
