"""What the events of a stream say: which carried tokens, when they came, how it ended.

An event is a token event when

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

Events of native APIs (``loadtest.dialects``) are told by their own fields and counted alike.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from loadtest.dialects.native_event import NativeEvent
from loadtest.dialects.registry import read_native
from loadtest.endpoint import redact
from loadtest.http.exchange import Failure, error_message
from loadtest.stream.event_pattern import EventPattern, pattern_of


@dataclass(slots=True)
class TokenStream:
    """The token events of one answer (stamps in nanoseconds, tokens in each) and its end.

    ``told`` says of each whether the server told its tokens, ``thoughts`` whether it held reasoning
    and no answer. ``silent`` lists those without text of which nobody said that they are tokens,
    ``counted`` is the sum of all tokens as they came. ``first_event_ns`` is the stamp of the first
    event that a client could take for a token, ``finish_ns`` that of an empty event with a finish
    reason.
    """

    stamps_ns: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    told: list[bool] = field(default_factory=list)
    thoughts: list[bool] = field(default_factory=list)
    silent: list[int] = field(default_factory=list)
    counted: int = 0
    usage: Mapping[str, Any] = field(default_factory=dict)
    finished: bool = False
    done: bool = False
    first_event_ns: int | None = None
    finish_ns: int | None = None
    failure: Failure | None = None
    pattern: EventPattern | None = None
    """Of the last event, where another one like it would hold one token of text too."""
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
    def first_sure_ns(self) -> int | None:
        """Stamp of the first event that is a token beyond doubt: with text, or by the counts."""
        doubtful = sum(index == silent for index, silent in enumerate(self.silent))
        return self.stamps_ns[doubtful] if doubtful < len(self.stamps_ns) else None

    @property
    def first_output_ns(self) -> int | None:
        """Stamp of the first token event that is no reasoning."""
        pairs = zip(self.stamps_ns, self.thoughts, strict=True)
        return next((stamp_ns for stamp_ns, thought in pairs if not thought), None)

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

    @property
    def over(self) -> bool:
        """Whether nothing that may still come matters."""
        return self.done or self.failure is not None

    def usage_count(self, name: str) -> int | None:
        """One figure of the usage, where it is one."""
        count = self.usage.get(name)
        return count if isinstance(count, int) else None


def take_event(stream: TokenStream, stamp_ns: int, payload: bytes) -> None:
    """Note what an event says that was whole at ``stamp_ns``."""
    if payload == b"[DONE]":
        stream.done = True
        return
    if stream.pattern and stream.pattern.fits(payload):
        _count(stream, stamp_ns, 1, told=False, thought=stream.thoughts[-1])
        return
    stream.pattern = None
    text = payload.decode(errors="replace")
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        stream.failure = Failure("broken_stream", redact(f"not a JSON object: {text[:80]!r}"))
    elif event.get("error") or event.get("object") == "error":
        stream.failure = Failure("sse_error", redact(error_message(event)))
    elif piece := read_native(event):
        _take_piece(stream, stamp_ns, piece)
    else:
        before = len(stream.tokens)
        _take_choices(stream, stamp_ns, event)
        if len(stream.tokens) == before + 1 and not (stream.told[-1] or event.get("usage")):
            stream.pattern = pattern_of(payload, event)


def settle(stream: TokenStream) -> None:
    """Decide on the events without text, now that the usage is known if it is told at all."""
    made = stream.usage_count("completion_tokens")
    if made == stream.counted - len(stream.silent):
        _drop_signs_of_life(stream)
    elif stream.finish_ns is not None and made == stream.counted + 1:
        _count(stream, stream.finish_ns, 1, told=True)
    if made == stream.counted:
        stream.silent.clear()


def _drop_signs_of_life(stream: TokenStream) -> None:
    """Events without text are no tokens where the others hold all that the server counted."""
    for index in reversed(stream.silent):
        for column in (stream.stamps_ns, stream.tokens, stream.told, stream.thoughts):
            del column[index]
    stream.counted -= len(stream.silent)


def _take_piece(stream: TokenStream, stamp_ns: int, piece: NativeEvent) -> None:
    stream.first_event_ns = stream.first_event_ns or stamp_ns
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


def _take_choices(stream: TokenStream, stamp_ns: int, event: dict[str, Any]) -> None:
    if isinstance(usage := event.get("usage"), dict):
        stream.usage = usage
    stream.response_id = stream.response_id or str(event.get("id") or "")
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            stream.first_event_ns = stream.first_event_ns or stamp_ns
            _take_choice(stream, stamp_ns, choice, _told_tokens(stream, event, choice))


def _told_tokens(stream: TokenStream, event: dict[str, Any], choice: dict[str, Any]) -> int | None:
    """The tokens in this event, where the server tells them."""
    token_ids = choice.get("token_ids")
    if isinstance(token_ids, list) and token_ids:
        return len(token_ids)
    made = stream.usage_count("completion_tokens") if event.get("usage") else None
    return None if made is None else made - stream.counted


def _take_choice(
    stream: TokenStream, stamp_ns: int, choice: dict[str, Any], told_tokens: int | None
) -> None:
    ends = choice.get("finish_reason") is not None
    stream.finished = stream.finished or ends
    told = max(told_tokens or 0, 0)
    text = choice.get("text")
    blank = text == "" and not ends and told_tokens != 0
    delta = choice.get("delta") or choice.get("message")
    channels = delta if isinstance(delta, dict) else {}
    answer = text or channels.get("content") or channels.get("tool_calls")
    thought = channels.get("reasoning") or channels.get("reasoning_content")
    if answer or thought or blank:
        if blank and not told:
            stream.silent.append(len(stream.tokens))
        _count(stream, stamp_ns, told or 1, told=told > 0, thought=bool(thought and not answer))
    elif ends:
        stream.finish_ns = stamp_ns


def _count(
    stream: TokenStream, stamp_ns: int, tokens: int, *, told: bool, thought: bool = False
) -> None:
    stream.stamps_ns.append(stamp_ns)
    stream.tokens.append(tokens)
    stream.counted += tokens
    stream.told.append(told)
    stream.thoughts.append(thought)
