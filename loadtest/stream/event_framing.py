"""Splits a body into events, however the network cut it: server-sent events, or lines of JSON.

Server-sent events follow WHATWG's HTML standard ("Interpreting an event stream"); only the data of
an event is kept.
"""

from collections.abc import Iterator

FramedEvent = tuple[int, bytes]
"""The offset of its end in the bytes fed last, and its payload."""


class JsonLines:
    """One payload per line; the last line needs no line end."""

    def __init__(self) -> None:
        self._splitter = _Splitter(b"\n")

    def feed(self, data: bytes) -> Iterator[FramedEvent]:
        """Yield the lines that end in ``data``."""
        for end, line in self._splitter.feed(data):
            if payload := line.strip():
                yield end, payload

    def end(self) -> Iterator[FramedEvent]:
        """Yield the last line."""
        return self.feed(b"\n")


class ServerSentEvents:
    """One payload per event: its data. An event that no empty line ends is dropped.

    Carriage returns become line feeds first, so offsets are not exact where there are some.
    """

    def __init__(self) -> None:
        self._splitter = _Splitter(b"\n\n")
        self._half_line_end = b""

    def feed(self, data: bytes) -> Iterator[FramedEvent]:
        """Yield the events that end in ``data``."""
        if self._half_line_end or b"\r" in data:
            data = self._with_line_feeds(self._half_line_end + data)
        for end, event in self._splitter.feed(data):
            if event.startswith(b"data: ") and b"\n" not in event:
                yield end, event[6:]
            elif payload := _payload(event):
                yield end, payload

    def end(self) -> Iterator[FramedEvent]:
        """Yield an event whose end may have been half a line end."""
        return self.feed(b"\n" if self._half_line_end else b"")

    def _with_line_feeds(self, data: bytes) -> bytes:
        self._half_line_end = data[-1:] if data.endswith(b"\r") else b""
        whole = data.removesuffix(b"\r")
        return whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


Framing = JsonLines | ServerSentEvents
"""Takes a body in pieces and yields its events; an event without a payload is skipped.

Exhaust what ``feed`` yields before the next call.
"""


def framing_of(start: bytes) -> Framing:
    """Return the framing of a body by its start: lines of JSON after a brace, else SSE."""
    return JsonLines() if start.lstrip().startswith(b"{") else ServerSentEvents()


class _Splitter:
    """Splits at a separator; the cost is linear in the bytes, however many pieces they come in."""

    def __init__(self, separator: bytes) -> None:
        self._separator = separator
        self._rest: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[FramedEvent]:
        """Yield what lies between separators, up to the last one."""
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
