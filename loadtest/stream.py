"""What a recorded stream says: which events carried tokens, when they came, how it ended.

Runs after the stream, so that parsing never delays a stamp. An event has the stamp of the read
that completed it. An event is a token event when

- a channel of the choice holds generated text: ``text``, or in ``delta`` (or ``message``)
  ``content``, ``reasoning``, ``reasoning_content``, ``tool_calls``;
- or it is a completions event with a ``text`` that is empty and without ``finish_reason``: servers
  that send one event per token send these for tokens that decode to no text of their own (half a
  character, a special token). On the chat API an empty delta is a role or a sign of life and never
  counts. Where the usage shows that it was no more than that in completions, it is taken out again.

The event with ``finish_reason`` is often empty. It is taken for the last token only when the usage
says that one more token was made than the other events hold.

An event holds as many tokens as it lists ``token_ids``, or by as many as its usage is more than
that of the one before; where it tells neither, one.

Events of native APIs (``loadtest.dialects``) are told by their own fields and counted alike. A body
that begins with a brace is a stream of JSON lines, any other one of server-sent events.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx
from httpx_sse import EventSource

from loadtest.dialects.piece import Piece
from loadtest.dialects.registry import read_native
from loadtest.endpoint import redact
from loadtest.exchange import Exchange, Failure, error_message

_CHANNELS = ("content", "reasoning", "reasoning_content", "tool_calls")


@dataclass(slots=True)
class Stream:
    """The token events of one answer (stamps in nanoseconds, tokens in each) and its end.

    ``told`` says of each whether the server told its tokens, ``silent`` lists those without text
    and without such a word, ``counted`` is the sum of their tokens as they came. ``finish_ns`` is
    the stamp of an empty event with a finish reason.
    """

    stamps_ns: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    told: list[bool] = field(default_factory=list)
    silent: list[int] = field(default_factory=list)
    counted: int = 0
    usage: Mapping[str, Any] = field(default_factory=dict)
    finished: bool = False
    done: bool = False
    finish_ns: int | None = None
    failure: Failure | None = None
    response_id: str = ""
    """The server's own name of the answer, by which its log knows the request."""

    @property
    def output_tokens(self) -> int:
        """Tokens made: the server's count where it sent one, else those of the events."""
        return self.usage_count("completion_tokens") or sum(self.tokens)

    @property
    def tokens_from(self) -> Literal["usage", "token_ids", "events"]:
        """What ``output_tokens`` rests on; events are a guess, for they may hold several."""
        if self.usage_count("completion_tokens"):
            return "usage"
        return "token_ids" if self.told and all(self.told) else "events"

    @property
    def first_chunk_tokens(self) -> int:
        """Tokens in the first event: all of them where it is the only one, else as told, or one."""
        if len(self.tokens) == 1:
            return self.output_tokens
        return self.tokens[0] if self.tokens else 0

    @property
    def first_chunk_told(self) -> bool:
        """Whether that is no assumption."""
        return len(self.tokens) == 1 or any(self.told[:1])

    @property
    def prompt_tokens(self) -> int | None:
        """The server's count of prompt tokens."""
        return self.usage_count("prompt_tokens")

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that the server found in its prefix cache; 0 where it does not say."""
        details = self.usage.get("prompt_tokens_details")
        found = details.get("cached_tokens") if isinstance(details, Mapping) else None
        return found if isinstance(found, int) else 0

    def usage_count(self, name: str) -> int | None:
        """One figure of the usage, where it is one."""
        count = self.usage.get(name)
        return count if isinstance(count, int) else None


def read_stream(exchange: Exchange) -> Stream:
    """Parse what was recorded. ``failure`` holds the first thing that makes it no whole stream."""
    stream = Stream()
    try:
        for stamp_ns, data in _events(exchange):
            _take(stream, stamp_ns, data)
            if stream.done or stream.failure:
                break
    except httpx.DecodingError as error:
        stream.failure = Failure("broken_stream", redact(str(error)))
    _drop_signs_of_life(stream)
    _count_silent_last_token(stream)
    stream.failure = stream.failure or _end(stream, exchange)
    return stream


class _Replay(httpx.SyncByteStream):
    """The recorded reads as a response body that remembers the stamp of the read given last."""

    def __init__(self, reads: Iterable[tuple[int, bytes]]) -> None:
        self._reads = reads
        self.stamp_ns = 0

    def __iter__(self) -> Iterator[bytes]:
        for stamp_ns, data in self._reads:
            self.stamp_ns = stamp_ns
            yield data


def _events(exchange: Exchange) -> Iterator[tuple[int, str]]:
    replay = _Replay(exchange.reads)
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    if exchange.headers and (encoding := exchange.headers.get("content-encoding")):
        headers["content-encoding"] = encoding
    response = httpx.Response(200, headers=headers, stream=replay)
    for data in _json_lines(response) if _has_json_lines(exchange) else _sse_data(response):
        if data:
            yield replay.stamp_ns, data


def _has_json_lines(exchange: Exchange) -> bool:
    _, start = next(iter(exchange.reads), (0, b""))
    return start.lstrip().startswith(b"{")


def _json_lines(response: httpx.Response) -> Iterator[str]:
    rest = b""
    for data in response.iter_bytes():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace").strip()
    yield rest.decode(errors="replace").strip()


def _sse_data(response: httpx.Response) -> Iterator[str]:
    return (event.data for event in EventSource(response).iter_sse())


def _take(stream: Stream, stamp_ns: int, data: str) -> None:
    if data == "[DONE]":
        stream.done = True
        return
    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        stream.failure = Failure("broken_stream", redact(f"not a JSON object: {data[:80]!r}"))
    elif event.get("error") or event.get("object") == "error":
        stream.failure = Failure("sse_error", redact(error_message(event)))
    elif piece := read_native(event):
        _take_piece(stream, stamp_ns, piece)
    else:
        _take_event(stream, stamp_ns, event)


def _take_piece(stream: Stream, stamp_ns: int, piece: Piece) -> None:
    stream.usage = piece.usage or stream.usage
    stream.response_id = stream.response_id or piece.response_id
    stream.finished = stream.finished or piece.ends
    told = piece.tokens if piece.made is None else max(piece.made - stream.counted, 0)
    if told or (told is None and piece.text):
        _count(stream, stamp_ns, told or 1, told=told is not None)
    elif piece.ends:
        stream.finish_ns = stamp_ns
    if piece.error is not None:
        stream.failure = Failure("sse_error", redact(piece.error))


def _take_event(stream: Stream, stamp_ns: int, event: dict[str, Any]) -> None:
    if isinstance(usage := event.get("usage"), dict):
        stream.usage = usage
    stream.response_id = stream.response_id or str(event.get("id") or "")
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            _take_choice(stream, stamp_ns, choice, _told_tokens(stream, event, choice))


def _told_tokens(stream: Stream, event: dict[str, Any], choice: dict[str, Any]) -> int | None:
    """The tokens in this event, where the server tells them."""
    token_ids = choice.get("token_ids")
    if isinstance(token_ids, list) and token_ids:
        return len(token_ids)
    made = stream.usage_count("completion_tokens") if event.get("usage") else None
    return None if made is None else made - stream.counted


def _take_choice(
    stream: Stream, stamp_ns: int, choice: dict[str, Any], told_tokens: int | None
) -> None:
    ends = choice.get("finish_reason") is not None
    stream.finished = stream.finished or ends
    told = max(told_tokens or 0, 0)
    blank = choice.get("text") == "" and not ends and told_tokens != 0
    if _has_text(choice) or blank:
        if blank and not told:
            stream.silent.append(len(stream.tokens))
        _count(stream, stamp_ns, told or 1, told=told > 0)
    elif ends:
        stream.finish_ns = stamp_ns


def _count(stream: Stream, stamp_ns: int, tokens: int, *, told: bool) -> None:
    stream.stamps_ns.append(stamp_ns)
    stream.tokens.append(tokens)
    stream.counted += tokens
    stream.told.append(told)


def _has_text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta") or choice.get("message")
    if isinstance(delta, dict) and any(delta.get(channel) for channel in _CHANNELS):
        return True
    return bool(choice.get("text"))


def _drop_signs_of_life(stream: Stream) -> None:
    """Events without text are no tokens where the others hold all that the server counted."""
    if stream.usage_count("completion_tokens") != sum(stream.tokens) - len(stream.silent):
        return
    for index in reversed(stream.silent):
        for column in (stream.stamps_ns, stream.tokens, stream.told):
            del column[index]


def _count_silent_last_token(stream: Stream) -> None:
    if stream.finish_ns is not None and stream.output_tokens == sum(stream.tokens) + 1:
        _count(stream, stream.finish_ns, 1, told=True)


def _end(stream: Stream, exchange: Exchange) -> Failure | None:
    """What the end makes of a stream whose events were all in order."""
    if exchange.failure and not stream.done:
        return exchange.failure
    if not stream.stamps_ns:
        start = b"".join(data for _, data in exchange.reads)[:80].decode(errors="replace")
        return Failure("no_token", redact(f"no event with text; the body begins {start!r}"))
    if not (stream.done or stream.finished):
        return Failure("broken_stream", "ended without finish_reason and without [DONE]")
    return None
