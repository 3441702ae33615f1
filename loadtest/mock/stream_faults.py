"""Faults that leave an answer complete: other forms of a stream, which are easily misread."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import ClassVar, Literal

from loadtest.mock.fault import Fault, NotNegative
from loadtest.mock.mock_answer import MockAnswer, StreamStyle, TextPiece, TimedWrite
from loadtest.mock.parsed_request import ParsedRequest
from sim.shapes.frozen_model import Count


class Role(Fault):
    """Chat only: an event with the role alone, ``at_ms`` after the request came."""

    name: ClassVar[str] = "role"
    at_ms: NotNegative = 50.0

    def pieces(self, pieces: Iterator[TextPiece], request: ParsedRequest) -> Iterator[TextPiece]:
        """Insert the role, never after the first token."""
        if not request.chat:
            return pieces
        return _before(pieces, self.at_ms / 1e3, [{"role": "assistant"}])


class Empty(Fault):
    """``count`` events with empty content, ``at_ms`` after the request came."""

    name: ClassVar[str] = "empty"
    count: Count = 2
    at_ms: NotNegative = 0.0

    def pieces(self, pieces: Iterator[TextPiece], request: ParsedRequest) -> Iterator[TextPiece]:
        """Insert the empty events before the first token."""
        return _before(pieces, self.at_ms / 1e3, [{"content": ""}] * self.count)


class Reasoning(Fault):
    """Chat only: the first ``tokens`` come in the channel of the reasoning."""

    name: ClassVar[str] = "reasoning"
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


class Chunks(Fault):
    """Several tokens come in one event, at the time of the first of them.

    So the first event comes the TTFT after the request, and the others ``tokens`` intervals apart.
    With ``ids`` an event lists the ids of its tokens.
    """

    name: ClassVar[str] = "chunks"
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
        return replace(style, token_ids=self.ids)


class Usage(Fault):
    """Usage comes never, although requested, or with each event."""

    name: ClassVar[str] = "usage"
    send: Literal["never", "each"] = "never"

    def style(self, style: StreamStyle) -> StreamStyle:
        """Set when usage comes."""
        return replace(style, usage=self.send)


class Comments(Fault):
    """SSE comments come at once and before each event, as gateways send them against timeouts."""

    name: ClassVar[str] = "comments"

    def style(self, style: StreamStyle) -> StreamStyle:
        """Turn comments on."""
        return replace(style, comments=True)


class CRLF(Fault):
    """Lines end with carriage return and line feed."""

    name: ClassVar[str] = "crlf"

    def style(self, style: StreamStyle) -> StreamStyle:
        """Set the line ends."""
        return replace(style, crlf=True)


class NoDone(Fault):
    """No ``[DONE]`` comes at the end."""

    name: ClassVar[str] = "no-done"

    def style(self, style: StreamStyle) -> StreamStyle:
        """Drop ``[DONE]``."""
        return replace(style, done=False)


class Split(Fault):
    """Events are cut within a character of four bytes; the first half comes ``gap_ms`` earlier."""

    name: ClassVar[str] = "split"
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


STREAM_FAULTS = (Role, Empty, Reasoning, Chunks, Usage, Comments, CRLF, Split, NoDone)


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
