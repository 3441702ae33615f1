"""Faults: changes to the answers to some requests.

First the faults that make an answer fail: late, broken, refused, or missing. Then those that leave
it complete: other forms of a stream, which are easily misread.
"""

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from servetwin.loadtest.mock.mock_answer import (
    MockAnswer,
    StreamStyle,
    TextPiece,
    TimedWrite,
    encode,
    error,
    json_answer,
    sse,
)
from servetwin.loadtest.mock.parsed_request import ParsedRequest
from servetwin.sim.catalogue.entry import Count, FrozenModel, NotNegative

Tokens = Annotated[int, Field(ge=0)]
# Every fault by its name on the command line.
FAULTS: "dict[str, type[Fault]]" = {}

_PAGE = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
_HALF = b'data: {"id":"mock","choices":[{"index":0,"te'


class Fault(FrozenModel):
    """A fault; its fields are the keys of ``--fault NAME:KEY=VALUE``.

    An answer is made in three stages, and a fault may change each: the pieces of text, the style
    of their events, and the answer as a whole. ``sets`` are fields of the style.
    """

    sets: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, name: str | None = None, **config: Any) -> None:
        super().__init_subclass__(**config)
        if name is not None:
            FAULTS[name] = cls

    def hits(self, request: ParsedRequest) -> bool:
        """Return whether the answer to this request has the fault."""
        return True

    def pieces(self, pieces: Iterator[TextPiece], request: ParsedRequest) -> Iterator[TextPiece]:
        """Return the pieces of text as this fault changes them."""
        return pieces

    def style(self, style: StreamStyle) -> StreamStyle:
        """Return the style of the events as this fault changes it."""
        return style._replace(**self.sets)

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Return the answer as this fault changes it."""
        return answer


class EveryNth(Fault):
    """A fault of every n-th request, ``every`` being n."""

    every: Count = 1

    def hits(self, request: ParsedRequest) -> bool:
        """Return whether the request is an n-th one in the order of arrival."""
        return (request.index + 1) % self.every == 0


class Freeze(Fault, name="freeze"):
    """The whole server stands still for ``for_s``, ``at_s`` after the first request came.

    Nothing is written meanwhile; afterwards everything that was due is late by as much.
    """

    at_s: NotNegative = 2.0
    for_s: NotNegative = 2.0


class SlowStart(Fault, name="slow-start"):
    """The first requests are answered ``extra_ms`` later, as by a cold server."""

    requests: Count = 1
    extra_ms: NotNegative = 1000.0

    def hits(self, request: ParsedRequest) -> bool:
        """Return whether the request is one of the first to arrive."""
        return request.index < self.requests

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Delay the answer."""
        return answer.delayed(self.extra_ms / 1e3)


class Cut(EveryNth, name="cut"):
    """The connection closes after ``after`` tokens."""

    after: Tokens = 8

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Cut the answer."""
        return replace(answer, events=_until(answer, self.after), ending="cut")


class ErrorObject(EveryNth, name="error"):
    """An error object comes after ``after`` tokens, then the connection closes.

    With ``named`` it is one by the name of its event alone.
    """

    after: Tokens = 8
    named: bool = False

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Cut the answer and append the error."""
        return replace(answer, events=self._events(answer), ending="cut")

    def _events(self, answer: MockAnswer) -> Iterator[TimedWrite]:
        at_s = 0.0
        for event in _until(answer, self.after):
            at_s = event.at_s
            yield event
        failure = error("the mock is set to fail", "server_error")
        name = b"event: error\n" if self.named else b""
        data = failure["error"] if self.named else {"object": "error", **failure}
        yield TimedWrite(at_s, name + sse(encode(data), StreamStyle()))


class Status(EveryNth, name="status"):
    """An HTTP status other than 200, at once, with a ``message``.

    ``retry_after_s`` adds the header Retry-After.
    """

    code: Annotated[int, Field(ge=400, le=599)] = 500
    retry_after_s: Tokens | None = None
    message: str | None = None

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Replace the answer with an error object."""
        wait = self.retry_after_s
        headers = {} if wait is None else {"Retry-After": str(wait)}
        kind = "rate_limit_exceeded" if self.code == 429 else "server_error"
        failure = error(self.message or f"the mock is set to answer {self.code}", kind)
        return json_answer(self.code, failure, headers)


class Garbage(EveryNth, name="garbage"):
    """Status 200 and a page of HTML, or an event that ends in the middle of its JSON."""

    kind: Literal["html", "json"] = "html"

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Replace the answer."""
        if self.kind == "json":
            return replace(answer, events=[TimedWrite(0.0, _HALF + b"\n\n")])
        page = [TimedWrite(0.0, _PAGE)]
        return MockAnswer(headers={"Content-Type": "text/html"}, events=page)


class Never(EveryNth, name="never"):
    """No answer, not even a status; the connection stays open."""

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Replace the answer with silence."""
        return MockAnswer(ending="silent")


class Refuse(Fault, name="refuse"):
    """After ``after`` requests no connection is accepted, and idle ones close."""

    after: Tokens = 0


def _until(answer: MockAnswer, tokens: int) -> Iterator[TimedWrite]:
    made = 0
    for event in answer.events:
        made += event.tokens
        if made > tokens:
            return
        yield event


class Role(Fault, name="role"):
    """Chat only: an event with the role alone, ``at_ms`` after the request came."""

    at_ms: NotNegative = 50.0

    def pieces(self, pieces: Iterator[TextPiece], request: ParsedRequest) -> Iterator[TextPiece]:
        """Insert the role, never after the first token."""
        if not request.chat:
            return pieces
        return _before(pieces, self.at_ms / 1e3, [{"role": "assistant"}])


class Empty(Fault, name="empty"):
    """``count`` events with empty content, ``at_ms`` after the request came."""

    count: Annotated[int, Field(ge=1, le=10_000)] = 2
    at_ms: NotNegative = 0.0

    def pieces(self, pieces: Iterator[TextPiece], request: ParsedRequest) -> Iterator[TextPiece]:
        """Insert the empty events before the first token."""
        return _before(pieces, self.at_ms / 1e3, [{"content": ""}] * self.count)


class Reasoning(Fault, name="reasoning"):
    """Chat only: the first ``tokens`` come in the channel of the reasoning."""

    tokens: Count = 8
    channel: Literal["reasoning_content", "reasoning"] = "reasoning_content"

    def pieces(self, pieces: Iterator[TextPiece], request: ParsedRequest) -> Iterator[TextPiece]:
        """Move the first tokens to the other channel."""
        return self._renamed(pieces) if request.chat else pieces

    def _renamed(self, pieces: Iterator[TextPiece]) -> Iterator[TextPiece]:
        made = 0
        for piece in pieces:
            reasons = piece.tokens and made < self.tokens
            yield piece._replace(channels={self.channel: piece.text}) if reasons else piece
            made += piece.tokens


class Chunks(Fault, name="chunks"):
    """Several tokens come in one event, at the time of the first of them.

    So the first event comes the TTFT after the request, and the others ``tokens`` intervals apart.
    With ``ids`` an event lists the ids of its tokens.
    """

    tokens: Count = 4
    ids: bool = False

    def pieces(self, pieces: Iterator[TextPiece], request: ParsedRequest) -> Iterator[TextPiece]:
        """Join the pieces in groups."""
        group: list[TextPiece] = []
        for piece in pieces:
            if not piece.tokens:
                yield piece
                continue
            group.append(piece)
            if len(group) == self.tokens or piece.finish:
                yield _joined(group)
                group = []

    def style(self, style: StreamStyle) -> StreamStyle:
        """Set whether events list token ids."""
        return style._replace(token_ids=self.ids)


class Usage(Fault, name="usage"):
    """Usage comes never, although requested, or with each event."""

    send: Literal["never", "each"] = "never"

    def style(self, style: StreamStyle) -> StreamStyle:
        """Set when usage comes."""
        return style._replace(usage=self.send)


class Comments(Fault, name="comments"):
    """SSE comments come at once and before each event, as gateways send them against timeouts."""

    sets: ClassVar = {"comments": True}


class CRLF(Fault, name="crlf"):
    """Lines end with carriage return and line feed."""

    sets: ClassVar = {"line_end": "\r\n"}


class Split(Fault, name="split"):
    """Events are cut within a character of four bytes; the first half comes ``gap_ms`` earlier."""

    gap_ms: NotNegative = 5.0

    def pieces(self, pieces: Iterator[TextPiece], request: ParsedRequest) -> Iterator[TextPiece]:
        """Append a character of four bytes to each text."""
        for piece in pieces:
            channels = {channel: f"{text}\N{FOX FACE}" for channel, text in piece.channels.items()}
            yield piece._replace(channels=channels) if piece.tokens else piece

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Split each event in two."""
        return replace(answer, events=self._halves(iter(answer.events)))

    def _halves(self, events: Iterator[TimedWrite]) -> Iterator[TimedWrite]:
        before_s = 0.0
        for event in events:
            middle = _within_a_character(event.data)
            yield TimedWrite(max(before_s, event.at_s - self.gap_ms / 1e3), event.data[:middle])
            yield event._replace(data=event.data[middle:])
            before_s = event.at_s


class Buffered(EveryNth, name="buffered"):
    """The whole answer comes at the time of its last token: in one piece, as from a proxy.

    Its ``kind`` is burst, gzip (compressed) or json (one object instead of a stream).
    """

    kind: Literal["burst", "gzip", "json"] = "burst"

    def style(self, style: StreamStyle) -> StreamStyle:
        """Set whether the answer is one object."""
        return style._replace(whole=self.kind == "json")

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Join all events."""
        events = list(answer.events)
        data, tokens = b"".join(e.data for e in events), sum(e.tokens for e in events)
        headers = dict(answer.headers)
        if self.kind == "gzip":
            data, headers["Content-Encoding"] = gzip.compress(data), "gzip"
        return replace(answer, headers=headers, events=[TimedWrite(events[-1].at_s, data, tokens)])


class NoDone(Fault, name="no-done"):
    """No ``[DONE]`` comes at the end."""

    sets: ClassVar = {"done": False}


def _before(
    pieces: Iterator[TextPiece], at_s: float, channels: list[dict[str, str]]
) -> Iterator[TextPiece]:
    first = next(pieces)
    at_s = min(at_s, first.at_s)
    return chain((TextPiece(at_s, channel) for channel in channels), [first], pieces)


def _joined(group: list[TextPiece]) -> TextPiece:
    first, text = group[0], "".join(piece.text for piece in group)
    channels = dict.fromkeys(first.channels, text)
    return TextPiece(first.at_s, channels, sum(piece.tokens for piece in group), group[-1].finish)


def _within_a_character(data: bytes) -> int:
    """Return the offset after the second byte of the first character with several bytes."""
    long = next((at for at, byte in enumerate(data) if byte > 127), None)
    return len(data) // 2 if long is None else long + 2
