"""The part of HTTP/1.1 that the mock needs: requests with a length, answers in chunks."""

from collections.abc import Iterator, Mapping
from http.client import responses
from typing import NamedTuple

from servetwin.loadtest.mock.mock_answer import MockAnswer, TimedWrite
from servetwin.loadtest.mock.parsed_request import BadRequest

MAX_HEAD_BYTES = 65_536
MAX_BODY_BYTES = 1 << 28
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class RequestHead(NamedTuple):
    """The head of a request; the names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]

    @property
    def body_bytes(self) -> int:
        """The length of the body. Raises ``BadRequest`` where it is missing or too large."""
        if "transfer-encoding" in self.headers:
            raise BadRequest(411, "send the body with its Content-Length")
        length = self.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise BadRequest(400, f"Content-Length {length!r} is no length")
        if int(length) > MAX_BODY_BYTES:
            raise BadRequest(413, f"the body is longer than {MAX_BODY_BYTES} bytes")
        return int(length)

    @property
    def keep_alive(self) -> bool:
        """Whether another request may follow on the connection."""
        return self.headers.get("connection", "").lower() != "close"

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for ``CONTINUE`` before it sends the body."""
        return self.headers.get("expect", "").lower() == "100-continue"


class RequestReader:
    """Takes bytes as they come and returns complete requests."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: RequestHead | None = None

    @property
    def empty(self) -> bool:
        """Whether the next byte will be the first one of a request."""
        return not self._buffer and self._head is None

    def feed(self, data: bytes) -> None:
        """Append bytes."""
        self._buffer += data

    def take(self) -> tuple[RequestHead, bytes] | None:
        """Take the next request; None where it is incomplete. Raises ``BadRequest``."""
        head = self.head()
        if head is None or len(self._buffer) < head.body_bytes:
            return None
        body = bytes(self._buffer[: head.body_bytes])
        del self._buffer[: head.body_bytes]
        self._head = None
        return head, body

    def head(self) -> RequestHead | None:
        """Return the head of the next request, whose body may be incomplete; None without one."""
        if self._head is None:
            self._head = self._take_head()
        return self._head

    def _take_head(self) -> RequestHead | None:
        end = self._buffer.find(b"\r\n\r\n")
        if (len(self._buffer) if end < 0 else end) > MAX_HEAD_BYTES:
            raise BadRequest(431, f"the headers are longer than {MAX_HEAD_BYTES} bytes")
        if end < 0:
            return None
        text = self._buffer[:end].decode("latin-1")
        del self._buffer[: end + 4]
        return _head(text)


def _head(text: str) -> RequestHead:
    first, *lines = text.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] != "HTTP/1.1":
        raise BadRequest(400, f"{first[:80]!r} is no line of HTTP/1.1")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequest(400, f"{line[:80]!r} is no header")
        headers[name.strip().lower()] = value.strip()
    return RequestHead(words[0], words[1].partition("?")[0], headers)


def on_the_wire(answer: MockAnswer, *, keep_alive: bool) -> Iterator[TimedWrite]:
    """Yield head, chunks and end of an answer, each at its time."""
    if answer.ending == "silent":
        return
    yield TimedWrite(0.0, _answer_head(answer, keep_alive))
    at_s = 0.0
    for at_s, data, tokens in answer.events:
        yield TimedWrite(at_s, b"%x\r\n%b\r\n" % (len(data), data), tokens)
    if answer.ending == "clean":
        yield TimedWrite(at_s, b"0\r\n\r\n")


def _answer_head(answer: MockAnswer, keep_alive: bool) -> bytes:
    headers = {**answer.headers, "Transfer-Encoding": "chunked"}
    if not keep_alive:
        headers["Connection"] = "close"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    phrase = responses.get(answer.status, "Unknown")
    return f"HTTP/1.1 {answer.status} {phrase}\r\n{lines}\r\n".encode("latin-1")
