"""Faults of careless servers: odd line ends and marks, wrong counts, tokens without text."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from servetwin.loadtest.mock.faults import Fault
from servetwin.loadtest.mock.mock_answer import MockAnswer, TextPiece, json_answer
from servetwin.loadtest.mock.parsed_request import ParsedRequest

_MARK = b"\xef\xbb\xbf"


class UsageSays(Fault):
    """The usage counts ``tokens`` output tokens, however many there were."""

    tokens: int

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Replace the count."""
        said = b'"completion_tokens":%d' % self.tokens
        events = (
            event._replace(data=re.sub(rb'"completion_tokens":\d+', said, event.data))
            for event in answer.events
        )
        return replace(answer, events=events)


class Undecoded(Fault):
    """One token of three decodes to no text; its event is empty, or is not ``sent`` at all."""

    sent: bool = True

    def pieces(self, pieces: Iterator[TextPiece], request: ParsedRequest) -> Iterator[TextPiece]:
        """Take the text out of some pieces, never of the first and the last."""
        held = 0
        for index, piece in enumerate(pieces):
            if (index + 1) % 3 or not piece.tokens or piece.finish:
                yield piece._replace(tokens=piece.tokens + held)
                held = 0
            elif self.sent:
                yield piece._replace(channels=dict.fromkeys(piece.channels, ""))
            else:
                held += piece.tokens


class Refusal(Fault):
    """The text of a chat comes in the channel of a refusal."""

    def pieces(self, pieces: Iterator[TextPiece], request: ParsedRequest) -> Iterator[TextPiece]:
        """Move the tokens to the other channel."""
        for piece in pieces:
            yield piece._replace(channels={"refusal": piece.text}) if piece.tokens else piece


class CR(Fault):
    """Lines end with a carriage return alone."""

    sets: ClassVar = {"line_end": "\r"}


class ByteOrderMark(Fault):
    """The body begins with a byte order mark."""

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Put the mark before the first event."""
        first, *others = answer.events
        return replace(answer, events=[first._replace(data=_MARK + first.data), *others])


class Redirect(Fault):
    """A redirect to a URL, at once."""

    to: str

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Replace the answer."""
        return json_answer(307, {}, {"Location": self.to})
