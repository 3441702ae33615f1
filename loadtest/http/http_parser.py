"""Parses HTTP/1.1 answers, however the network cut them (RFC 9112); no socket, no clock."""

import re
from collections.abc import Callable
from dataclasses import dataclass

HEAD_LIMIT = 64 * 1024
"""Bytes of a head, a chunk-size line or trailers above which a server counts as broken."""

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_LINE_END = re.compile(rb"\r?\n")
_FOLD = re.compile(rb"\r?\n[ \t]+")
_STATUS_LINE = re.compile(rb"(HTTP/1\.[01]) ([1-9]\d\d)(?: ([^\r\n]*))?")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00\r\n]*?)[ \t]*")
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(?:;[^\r\n]*)?\r\n")
_TRAILERS_END = re.compile(rb"\r\n(?:[^\r\n]+\r\n)*?\r\n")
_START = b"HTTP/1."
_NO_BODY = (204, 304)

Field = tuple[bytes, bytes]


class Malformed(ValueError):
    """The bytes are not HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status line and header fields, as they came."""

    version: bytes
    status: int
    reason: bytes
    fields: list[Field]

    def values(self, name: bytes) -> list[bytes]:
        """Return the elements, in lower case, of every field of this (lower-case) name."""
        found = (value for field, value in self.fields if field.lower() == name)
        return [part.strip().lower() for value in found for part in value.split(b",")]


_Read = Callable[["ResponseParser", bytes, int, list[bytes]], int]
"""Reads from an offset in the bytes, adds to the body, and returns the offset of what is left."""


class ResponseParser:
    """Parses one answer: takes bytes as they come and returns the body in them.

    Interim answers (1xx) are skipped. ``error`` says what is wrong with the bytes; the body before
    that stays. After ``complete`` nothing more is taken.
    """

    def __init__(self, method: str) -> None:
        self._without_body = method == "HEAD"
        self._read: _Read = ResponseParser._read_head  # Not bound: no reference cycle.
        self._pending = b""
        self._left = 0
        self._may_stay = False
        self.head: ResponseHead | None = None
        self.complete = False
        self.error = ""

    @property
    def connection_stays(self) -> bool:
        """Whether the connection can take another request."""
        return self.complete and self._may_stay and not self._pending

    def feed(self, data: bytes) -> bytes:
        """Take ``data`` and return the part of the body that it holds."""
        if self.error:
            return b""
        if self._pending:
            data = self._pending + data
        body: list[bytes] = []
        at = 0
        try:
            while at < len(data) and not self.complete:
                before, at = at, self._read(self, data, at, body)
                if at == before:
                    break
        except Malformed as error:
            self.error, at = str(error), len(data)
        self._pending = data[at:]
        return body[0] if len(body) == 1 else b"".join(body)

    def end(self) -> None:
        """End a body without a length, and cut any other: the connection was closed."""
        if self._read == ResponseParser._read_to_end and not self.error:
            self.complete = True
        elif not self.complete:
            self.error = self.error or f"the connection was closed {self._place()}"

    def _place(self) -> str:
        if self.head is None:
            return "within the head of the answer" if self._pending else "without an answer"
        if self._read == ResponseParser._read_sized:
            return f"with {self._left} bytes of the body missing"
        return "before the last chunk of the body"

    def _read_head(self, data: bytes, at: int, body: list[bytes]) -> int:
        start = data[at : at + len(_START)]
        if not _START.startswith(start):
            raise Malformed(f"not an HTTP/1.1 answer: it begins {data[at : at + 40]!r}")
        end = _HEAD_END.search(data, at)
        if not end:
            return _unfinished(data, at, "head")
        head = _parse_head(data[at : end.start()])
        if head.status >= 200:
            self._begin_body(head)
        elif head.status == 101:
            raise Malformed("the server switches to a protocol that was not asked for")
        return end.end()

    def _begin_body(self, head: ResponseHead) -> None:
        codings, length = head.values(b"transfer-encoding"), _content_length(head)
        self._may_stay = head.version == b"HTTP/1.1" and b"close" not in head.values(b"connection")
        if self._without_body or head.status in _NO_BODY:
            self.complete = True
        elif codings:
            if codings != [b"chunked"]:
                raise Malformed(f"Transfer-Encoding {b', '.join(codings)!r} is not understood")
            self._read = ResponseParser._read_chunk_size
        elif length is not None:
            self._left, self.complete = length, not length
            self._read = ResponseParser._read_sized
        else:
            self._may_stay = False
            self._read = ResponseParser._read_to_end
        self.head = head

    def _read_to_end(self, data: bytes, at: int, body: list[bytes]) -> int:
        body.append(data[at:])
        return len(data)

    def _read_sized(self, data: bytes, at: int, body: list[bytes]) -> int:
        at = self._take(data, at, body)
        self.complete = not self._left
        return at

    def _read_chunk_size(self, data: bytes, at: int, body: list[bytes]) -> int:
        line = _CHUNK_SIZE.match(data, at)
        if not line:
            if b"\r\n" in data[at : at + HEAD_LIMIT]:
                raise Malformed(f"not the size of a chunk: {data[at : at + 40]!r}")
            return _unfinished(data, at, "chunk size")
        self._left = int(line[1], 16)
        self._read = ResponseParser._read_chunk if self._left else ResponseParser._read_trailers
        # The line end stays: the trailers end with an empty line, also where there are none.
        return line.end() if self._left else line.end() - 2

    def _read_chunk(self, data: bytes, at: int, body: list[bytes]) -> int:
        at = self._take(data, at, body)
        if not self._left:
            self._read = ResponseParser._read_chunk_end
        return at

    def _read_chunk_end(self, data: bytes, at: int, body: list[bytes]) -> int:
        end = data[at : at + 2]
        if end == b"\r\n":
            self._read = ResponseParser._read_chunk_size
            return at + 2
        if end == b"\r":
            return at
        raise Malformed(f"a chunk is longer than its size: {data[at : at + 40]!r} follows it")

    def _read_trailers(self, data: bytes, at: int, body: list[bytes]) -> int:
        end = _TRAILERS_END.match(data, at)
        if not end:
            return _unfinished(data, at, "trailers")
        self.complete = True
        return end.end()

    def _take(self, data: bytes, at: int, body: list[bytes]) -> int:
        piece = data[at : at + self._left]
        body.append(piece)
        self._left -= len(piece)
        return at + len(piece)


def _unfinished(data: bytes, at: int, what: str) -> int:
    if len(data) - at > HEAD_LIMIT:
        raise Malformed(f"the {what} is longer than {HEAD_LIMIT} bytes")
    return at


def _parse_head(head: bytes) -> ResponseHead:
    first, *lines = _LINE_END.split(_FOLD.sub(b" ", head))
    status = _STATUS_LINE.fullmatch(first)
    if not status:
        raise Malformed(f"not a status line: {first[:40]!r}")
    fields = [_field(line) for line in lines]
    return ResponseHead(status[1], int(status[2]), status[3] or b"", fields)


def _field(line: bytes) -> Field:
    field = _FIELD.fullmatch(line)
    if not field:
        raise Malformed(f"not a header field: {line[:40]!r}")
    return field[1], field[2]


def _content_length(head: ResponseHead) -> int | None:
    lengths = set(head.values(b"content-length"))
    if not lengths:
        return None
    if len(lengths) > 1 or not all(re.fullmatch(rb"\d{1,18}", length) for length in lengths):
        raise Malformed(f"not a Content-Length: {b', '.join(sorted(lengths))!r}")
    return int(lengths.pop())
