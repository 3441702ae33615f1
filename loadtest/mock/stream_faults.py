"""Faults of proxies and of careless servers: streams that are no streams, counts that are none.

``FAULTS`` has all faults by name, also those of ``loadtest.mock.faults``.
"""

import gzip
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from servetwin.loadtest.mock.faults import FAULTS, EveryNth, Fault
from servetwin.loadtest.mock.mock_answer import (
    MockAnswer,
    StreamStyle,
    TextPiece,
    TimedWrite,
    json_answer,
)
from servetwin.loadtest.mock.parsed_request import ParsedRequest
from servetwin.sim.catalogue.entry import Count

__all__ = ["FAULTS"]

_MARK = b"\xef\xbb\xbf"


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


class UsageSays(EveryNth, name="usage-says"):
    """The usage counts ``tokens`` output tokens, however many there were."""

    tokens: int = -1

    def style(self, style: StreamStyle) -> StreamStyle:
        """Set the count."""
        return style._replace(usage_says=self.tokens)


class Undecoded(Fault, name="undecoded"):
    """One token of ``of`` decodes to no text; its event is empty, or is not ``sent`` at all."""

    of: Annotated[int, Field(ge=2)] = 3
    sent: bool = True

    def pieces(self, pieces: Iterator[TextPiece], request: ParsedRequest) -> Iterator[TextPiece]:
        """Take the text out of some pieces, never of the first and the last."""
        held = 0
        for index, piece in enumerate(pieces):
            if (index + 1) % self.of or not piece.tokens or piece.finish:
                yield piece._replace(tokens=piece.tokens + held)
                held = 0
            elif self.sent:
                yield piece._replace(channels=dict.fromkeys(piece.channels, ""))
            else:
                held += piece.tokens


class Refusal(Fault, name="refusal"):
    """Chat only: the text comes in the channel of a refusal."""

    def pieces(self, pieces: Iterator[TextPiece], request: ParsedRequest) -> Iterator[TextPiece]:
        """Move the tokens to the other channel."""
        for piece in pieces:
            moves = request.chat and piece.tokens
            yield piece._replace(channels={"refusal": piece.text}) if moves else piece


class CR(Fault, name="cr"):
    """Lines end with a carriage return alone."""

    sets: ClassVar = {"line_end": "\r"}


class ByteOrderMark(Fault, name="bom"):
    """The body begins with a byte order mark."""

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Put the mark before the first event."""
        return replace(answer, events=self._marked(iter(answer.events)))

    def _marked(self, events: Iterator[TimedWrite]) -> Iterator[TimedWrite]:
        first = next(events)
        yield first._replace(data=_MARK + first.data)
        yield from events


class Redirect(EveryNth, name="redirect"):
    """A redirect to a URL, at once."""

    to: str = "http://moved.example/v1/completions"
    code: Count = 307

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Replace the answer."""
        return json_answer(self.code, {}, {"Location": self.to})
