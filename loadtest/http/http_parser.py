"""Parses HTTP/1.1 answers, however the network cut them: httptools with our limits and messages."""

from dataclasses import dataclass

import httptools

# Bytes in a row without any of the body above which a server counts as broken.
HEAD_LIMIT = 64 * 1024

# What careless servers send: folded headers, a length beside chunks, bare line feeds, spaces.
_LENIENT = {
    "lenient_headers": True,
    "lenient_chunked_length": True,
    "lenient_optional_cr_before_lf": True,
    "lenient_spaces_after_chunk_size": True,
}
_SHOWN = 40

Field = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status line and header fields, as they came."""

    version: bytes
    status: int
    reason: bytes
    fields: list[Field]


class ResponseParser:
    """Parses one answer: takes bytes as they come and returns the body in them.

    Interim answers (1xx) are skipped. ``error`` says what is wrong with the bytes; the body before
    that stays. After ``complete`` nothing more is taken. ``connection_stays`` says whether the
    connection can take another request then.
    """

    def __init__(self) -> None:
        # Dropped at the end: it and this object refer to each other, and no garbage is collected.
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**_LENIENT)
        self._reason = b""
        self._fields: list[Field] = []
        self._body: list[bytes] = []
        self._missing: int | None = None
        self._to_end = False
        self._without_body = 0
        self.head: ResponseHead | None = None
        self.complete = False
        self.connection_stays = False
        self.error = ""

    def feed(self, data: bytes) -> bytes:
        """Take ``data`` and return the part of the body that it holds."""
        if self._parser is None:
            self.connection_stays &= not data.strip(b"\r\n")
            return b""
        self._body = []
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.connection_stays = False
            if not self.complete:
                self.fail(f"not HTTP/1.1 ({error}): {data[:_SHOWN]!r}")
        body = b"".join(self._body)
        self._without_body = 0 if body else self._without_body + len(data)
        if self._without_body > HEAD_LIMIT:
            self.fail(f"the head, chunk size or trailers are longer than {HEAD_LIMIT} bytes")
        if self.complete or self.error:
            self._parser = None
        return body

    def fail(self, reason: str) -> None:
        """Take no more; only the first reason counts."""
        self.error = self.error or reason
        self._parser = None

    def end(self) -> None:
        """End a body without a length, and cut any other: the connection was closed."""
        if self._to_end and not self.error:
            self.complete = True
        elif not self.complete:
            self.fail(f"the connection was closed {self._place()}")
        self._parser = None

    def _place(self) -> str:
        if self.head is None:
            return "within the head of the answer" if self._without_body else "without an answer"
        if self._missing is not None:
            return f"with {self._missing} bytes of the body missing"
        return "before the last chunk of the body"

    def on_message_begin(self) -> None:
        """Called by httptools at the first byte; after a complete answer there must be none."""
        self.connection_stays = False
        self._reason = b""

    def on_status(self, reason: bytes) -> None:
        """Called by httptools with the phrase after the status, or a part of it."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by httptools with a header, or a trailer, which nobody reads."""
        self._fields.append((name, value.strip()))

    def on_headers_complete(self) -> None:
        """Called by httptools at the end of a head."""
        if self._parser is None or self.complete:
            return
        status, fields, self._fields = self._parser.get_status_code(), self._fields, []
        if status == 101:
            self.error = "the server switches to a protocol that was not asked for"
        if status < 200:
            return
        values = {name.lower(): value.lower() for name, value in fields}
        coding, length = values.get(b"transfer-encoding"), values.get(b"content-length")
        if coding not in (None, b"chunked"):
            self.error = f"Transfer-Encoding {coding!r} is not understood"
        self._missing = int(length) if length and not coding else None
        self._to_end = length is None and coding is None and status not in (204, 304)
        version = f"HTTP/{self._parser.get_http_version()}".encode()
        self.head = ResponseHead(version, status, self._reason, fields)

    def on_body(self, data: bytes) -> None:
        """Called by httptools with bytes of the body."""
        if self.complete or self.error:
            return
        self._body.append(data)
        if self._missing is not None:
            self._missing -= len(data)

    def on_message_complete(self) -> None:
        """Called by httptools at the end of an answer, also of an interim one."""
        if self.head and self._parser and not (self.complete or self.error):
            self.complete = True
            self.connection_stays = self._parser.should_keep_alive()
