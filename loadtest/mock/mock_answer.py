"""The answer of a mock: pieces of text become events, and events become writes at given times."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from servetwin.loadtest.mock.parsed_request import ParsedRequest

# clean: complete; cut: the connection closes before the end; silent: nothing more ever comes.
Ending = Literal["clean", "cut", "silent"]

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_COMMENT = ": still here\n\n"
_JSON = {"Content-Type": "application/json"}
_DIMENSIONS = 64
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
        """The text of all channels but the role."""
        return "".join(text for channel, text in self.channels.items() if channel != "role")


class TimedWrite(NamedTuple):
    """Bytes that are written at once, and the number of tokens that they complete."""

    at_s: float
    data: bytes
    tokens: int = 0


class StreamStyle(NamedTuple):
    """The form of an answer: which fields, comments and line ends its events have.

    ``whole`` is one JSON object, no stream.
    """

    usage: Literal["asked", "never", "each"] = "asked"
    token_ids: bool = False
    comments: bool = False
    line_end: str = "\n"
    done: bool = True
    whole: bool = False


@dataclass(frozen=True, slots=True)
class MockAnswer:
    """An HTTP answer: status, headers, body and how it ends."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: dict(_SSE))
    events: Iterable[TimedWrite] = ()
    ending: Ending = "clean"

    def delayed(self, by_s: float) -> "MockAnswer":
        """Return the same answer, ``by_s`` later."""
        later = (event._replace(at_s=event.at_s + by_s) for event in self.events)
        return replace(self, events=later)


def whole_answer(request: ParsedRequest, pieces: Iterable[TextPiece]) -> MockAnswer:
    """Return the pieces as one JSON object, written at the time of the last."""
    made = list(pieces)
    last, tokens = made[-1], sum(piece.tokens for piece in made)
    text = "".join(piece.text for piece in made)
    fields = {"message": {"role": "assistant", "content": text}} if request.chat else {"text": text}
    body = _head(request, "chat.completion" if request.chat else "text_completion")
    body["choices"] = [{"index": 0, **fields, "finish_reason": last.finish}]
    body["usage"] = _usage(request, tokens)
    return MockAnswer(headers=_JSON, events=[TimedWrite(last.at_s, encode(body).encode(), tokens)])


def embedding_answer(request: ParsedRequest, at_s: float) -> MockAnswer:
    """Return an embedding, which says nothing of its input, written at once."""
    vector = [round(1 / (dimension + 1), 6) for dimension in range(_DIMENSIONS)]
    usage = {"prompt_tokens": request.prompt_tokens, "total_tokens": request.prompt_tokens}
    listed = [{"object": "embedding", "index": 0, "embedding": vector}]
    body = {"object": "list", "data": listed, "model": request.model, "usage": usage}
    return MockAnswer(headers=_JSON, events=[TimedWrite(at_s, encode(body).encode())])


def json_answer(status: int, body: Any, headers: Mapping[str, str] | None = None) -> MockAnswer:
    """Return a JSON body, written at once."""
    written = TimedWrite(0.0, encode(body).encode())
    return MockAnswer(status, {**_JSON, **(headers or {})}, [written])


def error(message: str, kind: str) -> dict[str, object]:
    """Return an error object in OpenAI's shape."""
    return {"error": {"message": message, "type": kind}}


def sse(data: str, style: StreamStyle) -> bytes:
    """Return one server-sent event, after a comment where the style has them."""
    comment = _COMMENT if style.comments else ""
    return _lines(f"{comment}data: {data}\n\n", style)


def encode(body: Any) -> str:
    """Return JSON on one line, without escapes for characters beyond ASCII."""
    return _ENCODE(body)


def _lines(text: str, style: StreamStyle) -> bytes:
    return text.replace("\n", style.line_end).encode()


def stream_events(
    request: ParsedRequest, pieces: Iterable[TextPiece], style: StreamStyle
) -> Iterator[TimedWrite]:
    """Yield the pieces as server-sent events."""
    kind = "chat.completion.chunk" if request.chat else "text_completion"
    opened = encode(_head(request, kind)).removesuffix("}")
    made, at_s = 0, 0.0
    if style.comments:
        yield TimedWrite(at_s, _lines(_COMMENT, style))
    for piece in pieces:
        at_s, made = piece.at_s, made + piece.tokens
        usage = f',"usage":{encode(_usage(request, made))}' if style.usage == "each" else ""
        choice = encode(_choice(request, piece, style))
        yield TimedWrite(at_s, sse(f'{opened},"choices":[{choice}]{usage}}}', style), piece.tokens)
    if request.include_usage and style.usage == "asked":
        usage = encode(_usage(request, made))
        yield TimedWrite(at_s, sse(f'{opened},"choices":[],"usage":{usage}}}', style))
    if style.done:
        yield TimedWrite(at_s, sse("[DONE]", style))


def _head(request: ParsedRequest, kind: str) -> dict[str, object]:
    return {"id": request.request_id, "object": kind, "created": 0, "model": request.model}


def _choice(request: ParsedRequest, piece: TextPiece, style: StreamStyle) -> dict[str, object]:
    fields = {"delta": piece.channels} if request.chat else {"text": piece.text}
    ids = {"token_ids": [*range(piece.tokens)]} if style.token_ids else {}
    return {"index": 0, **fields, **ids, "finish_reason": piece.finish}


def _usage(request: ParsedRequest, made: int) -> dict[str, int]:
    prompt = request.prompt_tokens
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
