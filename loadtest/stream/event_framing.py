"""Splits a body into events, however the network cut it: server-sent events, or lines of JSON.

Server-sent events follow WHATWG's HTML standard ("Interpreting an event stream"); of an event its
data is kept, and whether its name is ``error``.
"""

import re
from collections.abc import Iterator

# The offset of its end in the bytes fed last, and its payload.
FramedEvent = tuple[int, bytes]

_BOM = b"\xef\xbb\xbf"
# A body with so much white space before anything else is one of server-sent events.
_START_BYTES = 4096
_LONE_RETURN = re.compile(rb"\r[^\n]")


class ErrorData(bytes):
    """The data of an event whose name is ``error``."""


class JsonLines:
    """One payload per line; the last line needs no line end.

    An object over several lines, from a line ``{`` to a line ``}``, is one payload too.
    """

    def __init__(self) -> None:
        self._splitter = _Splitter(b"\n")
        self._lines: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[FramedEvent]:
        """Yield the lines that end in ``data``."""
        for end, line in self._splitter.feed(data):
            if self._lines or line.strip() == b"{":
                self._lines.append(line)
                if line.rstrip() == b"}":
                    yield end, b"\n".join(self._lines)
                    self._lines = []
            elif payload := line.strip():
                yield end, payload

    def end(self) -> Iterator[FramedEvent]:
        """Yield the last line."""
        return self.feed(b"\n")


class ServerSentEvents:
    """One payload per event: its data. An event that no empty line ends is dropped.

    Carriage returns become line feeds first, so offsets are not exact where there are some. One at
    the end of the bytes may be half a line end and waits for the next byte; where lines are known
    to end with carriage returns alone, it does not, since it would delay every event by one.
    """

    def __init__(self) -> None:
        self._splitter = _Splitter(b"\n\n")
        self._half_line_end = b""
        self._lone_returns = False
        self._after_return = False

    @property
    def between_events(self) -> bool:
        """Whether nothing is held of the bytes so far, so that an event begins with the next."""
        return not (self._half_line_end or self._after_return or self._splitter.rest)

    def feed(self, data: bytes) -> Iterator[FramedEvent]:
        """Yield the events that end in ``data``."""
        if self._half_line_end or self._after_return or b"\r" in data:
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
        if self._after_return:
            data = data.removeprefix(b"\n")
        self._lone_returns = self._lone_returns or _LONE_RETURN.search(data) is not None
        self._after_return = self._lone_returns and data.endswith(b"\r")
        self._half_line_end = b"" if self._lone_returns or data[-1:] != b"\r" else b"\r"
        whole = data.removesuffix(self._half_line_end)
        return whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


# Takes a body in pieces and yields its events; an event without a payload is skipped.
# Exhaust what ``feed`` yields before the next call.
Framing = JsonLines | ServerSentEvents


def without_mark(start: bytes) -> bytes:
    """Return the start of a body without a byte order mark."""
    return start.removeprefix(_BOM)


def framing_of(start: bytes) -> Framing | None:
    """Return the framing of a body by its start: lines of JSON after a brace, else SSE.

    None where the start does not show it yet: white space, or part of a byte order mark.
    """
    if len(start) < len(_BOM) and _BOM.startswith(start):
        return None
    text = without_mark(start[:_START_BYTES]).lstrip()
    if not text and len(start) < _START_BYTES:
        return None
    return JsonLines() if text.startswith(b"{") else ServerSentEvents()


class _Splitter:
    """Splits at a separator; the cost is linear in the bytes, however many pieces they come in.

    ``rest`` are the bytes behind the last separator.
    """

    def __init__(self, separator: bytes) -> None:
        self._separator = separator
        self.rest: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[FramedEvent]:
        """Yield what lies between separators, up to the last one."""
        before = self.rest[-1][-1:] if self.rest else b""  # no separator is longer than two
        if data:
            self.rest.append(data)
        if self._separator not in before + data:
            return
        at = len(data) - sum(map(len, self.rest))
        *pieces, rest = b"".join(self.rest).split(self._separator)
        self.rest = [rest] if rest else []
        for piece in pieces:
            at += len(piece) + len(self._separator)
            yield at, piece


def _payload(event: bytes) -> bytes:
    parts = (line.partition(b":") for line in event.split(b"\n"))
    fields = [(name, value.removeprefix(b" ")) for name, _, value in parts]
    data = b"\n".join(value for name, value in fields if name == b"data")
    names = [value for name, value in fields if name == b"event"]
    return ErrorData(data) if names[-1:] == [b"error"] else data
