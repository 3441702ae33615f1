"""What a recorded stream says: which events carried tokens, when they came, how it ended.

Runs after the stream, so that parsing never delays a stamp. An event has the stamp of the read
that completed it. An event is a token event when

- a channel of the choice holds generated text: ``text``, or in ``delta`` (or ``message``)
  ``content``, ``reasoning``, ``reasoning_content``, ``tool_calls``;
- or it is a completions event with a ``text`` that is empty and without ``finish_reason``: servers
  that send one event per token send these for tokens that decode to no text of their own (half a
  character, a special token). On the chat API an empty delta is a role or a sign of life and never
  counts.

The event with ``finish_reason`` is often empty. It is taken for the last token only when the usage
says that one more token was made than the other events hold.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from httpx_sse import EventSource

from loadtest.endpoint import redact
from loadtest.exchange import Exchange, Failure, error_message

_CHANNELS = ("content", "reasoning", "reasoning_content", "tool_calls")


@dataclass(slots=True)
class Stream:
    """The token events of one answer (stamps in nanoseconds, tokens in each) and its end.

    ``finish_ns`` is the stamp of an empty event with a finish reason.
    """

    stamps_ns: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
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
        return self._usage_count("completion_tokens") or sum(self.tokens)

    @property
    def prompt_tokens(self) -> int | None:
        """The server's count of prompt tokens."""
        return self._usage_count("prompt_tokens")

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that the server found in its prefix cache; 0 where it does not say."""
        details = self.usage.get("prompt_tokens_details")
        found = details.get("cached_tokens") if isinstance(details, Mapping) else None
        return found if isinstance(found, int) else 0

    def _usage_count(self, name: str) -> int | None:
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
    source = EventSource(httpx.Response(200, headers=headers, stream=replay))
    for event in source.iter_sse():
        if event.data:
            yield replay.stamp_ns, event.data


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
    else:
        _take_event(stream, stamp_ns, event)


def _take_event(stream: Stream, stamp_ns: int, event: dict[str, Any]) -> None:
    if isinstance(usage := event.get("usage"), dict):
        stream.usage = usage
    stream.response_id = stream.response_id or str(event.get("id") or "")
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            _take_choice(stream, stamp_ns, choice)


def _take_choice(stream: Stream, stamp_ns: int, choice: dict[str, Any]) -> None:
    ends = choice.get("finish_reason") is not None
    stream.finished = stream.finished or ends
    if _has_text(choice) or (choice.get("text") == "" and not ends):
        stream.stamps_ns.append(stamp_ns)
        stream.tokens.append(_token_count(choice))
    elif ends:
        stream.finish_ns = stamp_ns


def _has_text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta") or choice.get("message")
    if isinstance(delta, dict) and any(delta.get(channel) for channel in _CHANNELS):
        return True
    return bool(choice.get("text"))


def _token_count(choice: dict[str, Any]) -> int:
    token_ids = choice.get("token_ids")
    return len(token_ids) if isinstance(token_ids, list) and token_ids else 1


def _count_silent_last_token(stream: Stream) -> None:
    if stream.finish_ns is not None and stream.output_tokens == sum(stream.tokens) + 1:
        stream.stamps_ns.append(stream.finish_ns)
        stream.tokens.append(1)


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
