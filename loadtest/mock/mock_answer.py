"""An answer as a list of what is written when: pieces of text, then events, then bytes."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from loadtest.mock.parsed_request import ParsedRequest

Ending = Literal["clean", "cut", "silent"]
"""Complete; the connection closed before the end; nothing more ever comes."""

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_COMMENT = ": still here\n\n"
_JSON = {"Content-Type": "application/json"}
_SSE = {"Content-Type": "text/event-stream"}


class TextPiece(NamedTuple):
    """Text that becomes one event ``at_s`` seconds after the request came.

    ``channels`` is a chat delta; completions have its text without the role.
    """

    at_s: float
    channels: Mapping[str, str]
    tokens: int = 0
    finish: str | None = None

    @property
    def text(self) -> str:
        """Of all channels but the role."""
        return "".join(text for channel, text in self.channels.items() if channel != "role")


class TimedWrite(NamedTuple):
    """Bytes that are written in one piece, and the tokens that are complete with them."""

    at_s: float
    data: bytes
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class StreamStyle:
    """How text is written down as server-sent events."""

    usage: Literal["asked", "never", "each"] = "asked"
    token_ids: bool = False
    comments: bool = False
    crlf: bool = False
    done: bool = True


@dataclass(frozen=True, slots=True)
class MockAnswer:
    """Status, headers, body and how it ends."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: dict(_SSE))
    events: Iterable[TimedWrite] = ()
    ending: Ending = "clean"

    def delayed(self, by_s: float) -> "MockAnswer":
        """The same, later."""
        later = (event._replace(at_s=event.at_s + by_s) for event in self.events)
        return replace(self, events=later)


def streamed(
    ask: ParsedRequest, model: str, pieces: Iterable[TextPiece], style: StreamStyle
) -> MockAnswer:
    """The pieces as server-sent events."""
    return MockAnswer(events=_events(ask, model, pieces, style))


def whole(ask: ParsedRequest, model: str, pieces: Iterable[TextPiece]) -> MockAnswer:
    """The pieces as one JSON object, when the last one is there."""
    made = list(pieces)
    last, tokens = made[-1], sum(piece.tokens for piece in made)
    text = "".join(piece.text for piece in made)
    said = {"message": {"role": "assistant", "content": text}} if ask.chat else {"text": text}
    body = _head(ask, model, "chat.completion" if ask.chat else "text_completion")
    body["choices"] = [{"index": 0, **said, "finish_reason": last.finish}]
    body["usage"] = _usage(ask, tokens)
    return MockAnswer(headers=_JSON, events=[TimedWrite(last.at_s, encode(body).encode(), tokens)])


def told(status: int, body: Any, headers: Mapping[str, str] | None = None) -> MockAnswer:
    """A JSON body at once."""
    return MockAnswer(
        status, {**_JSON, **(headers or {})}, [TimedWrite(0.0, encode(body).encode())]
    )


def error(message: str, kind: str) -> dict[str, Any]:
    """An error object in OpenAI's shape."""
    return {"error": {"message": message, "type": kind}}


def sse(data: str, style: StreamStyle) -> bytes:
    """One server-sent event, a comment before it where the style has them."""
    comment = _COMMENT if style.comments else ""
    return _lines(f"{comment}data: {data}\n\n", style)


def encode(body: Any) -> str:
    """JSON on one line, characters as they are."""
    return _ENCODE(body)


def _lines(text: str, style: StreamStyle) -> bytes:
    return (text.replace("\n", "\r\n") if style.crlf else text).encode()


def _events(
    ask: ParsedRequest, model: str, pieces: Iterable[TextPiece], style: StreamStyle
) -> Iterator[TimedWrite]:
    head = encode(_head(ask, model, "chat.completion.chunk" if ask.chat else "text_completion"))
    opened, made, at_s = head.removesuffix("}"), 0, 0.0
    if style.comments:
        yield TimedWrite(at_s, _lines(_COMMENT, style))
    for piece in pieces:
        at_s, made = piece.at_s, made + piece.tokens
        usage = f',"usage":{encode(_usage(ask, made))}' if style.usage == "each" else ""
        choice = encode(_choice(ask, piece, style))
        yield TimedWrite(at_s, sse(f'{opened},"choices":[{choice}]{usage}}}', style), piece.tokens)
    if ask.include_usage and style.usage == "asked":
        usage = encode(_usage(ask, made))
        yield TimedWrite(at_s, sse(f'{opened},"choices":[],"usage":{usage}}}', style))
    if style.done:
        yield TimedWrite(at_s, sse("[DONE]", style))


def _head(ask: ParsedRequest, model: str, kind: str) -> dict[str, Any]:
    return {"id": ask.request_id, "object": kind, "created": 0, "model": model}


def _choice(ask: ParsedRequest, piece: TextPiece, style: StreamStyle) -> dict[str, Any]:
    said = {"delta": piece.channels} if ask.chat else {"text": piece.text}
    ids = {"token_ids": [*range(piece.tokens)]} if style.token_ids else {}
    return {"index": 0, **said, **ids, "finish_reason": piece.finish}


def _usage(ask: ParsedRequest, made: int) -> dict[str, int]:
    total = ask.prompt_tokens + made
    return {"prompt_tokens": ask.prompt_tokens, "completion_tokens": made, "total_tokens": total}
