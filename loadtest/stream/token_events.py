"""The tokens in the events of a stream: how many, when they came, and how the stream ended.

An event is a token event when

- a channel of the choice holds generated text: ``text``, or in ``delta`` (or ``message``)
  ``content``, ``refusal``, ``reasoning``, ``reasoning_content``, ``tool_calls``;
- or it is a completions event with an empty ``text`` and without ``finish_reason``: servers that
  send one event per token send these for tokens without text of their own (half a character, a
  special token). Where the usage shows that such an event was a keep-alive, it is dropped again;
- or it is a chat event without text that the server's counts show to be a token: the usage in it,
  or a usage at the end that exceeds the other events by exactly the number of events without text.
  Else such a delta is a role or a keep-alive and does not count.

The event with ``finish_reason`` is often empty. It counts as the last token only when the usage
has one token more than the other events hold.

An event holds as many tokens as it lists ``token_ids``, or as its usage exceeds that of the event
before; with neither, one.

Events of native APIs (``loadtest.dialects``) are recognised by their own fields and counted alike.

Most events of a stream differ in their text alone, and such an event need not be decoded to be
counted: two JSON documents with the same bytes around one string, which holds text in both and
nothing that needs an escape, have the same structure (``EventPattern``).
"""

import json
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from servetwin.loadtest.dialects.dialect import NativeEvent
from servetwin.loadtest.dialects.servers import read_native
from servetwin.loadtest.http.exchange import Failure, error_message
from servetwin.loadtest.redaction import hide_secrets, redact
from servetwin.loadtest.stream.event_framing import ErrorData

_NEEDS_ESCAPE = re.compile(rb'["\\\x00-\x1f]')
# Characters of an unreadable event that its failure shows.
SHOWN = 80
_TEXTS = ("content", "refusal", "reasoning", "reasoning_content")


# An event that is not among the tokens: its place among them, and its stamp.
PlacedEvent = tuple[int, int]


class EventPattern(NamedTuple):
    """The bytes before and after the text of an event with one token, and how many they are."""

    before: bytes
    after: bytes
    frame_bytes: int

    def fits(self, payload: bytes) -> bool:
        """Return whether another event differs in its text alone."""
        before, after, frame_bytes = self
        size = len(payload)
        return (
            size > frame_bytes
            and payload.startswith(before)
            and payload.endswith(after)
            and not _NEEDS_ESCAPE.search(payload, len(before), size - len(after))
        )


def pattern_of(payload: bytes, event: Mapping[str, object]) -> EventPattern | None:
    """Return the pattern of an event of OpenAI's API; None unless its text occurs in it once."""
    texts = [text for text in _texts(event) if isinstance(text, str) and text]
    quoted = b'"%b"' % texts[0].encode(errors="surrogatepass") if len(texts) == 1 else b""
    if not quoted or payload.count(quoted) != 1:
        return None
    start = payload.index(quoted) + 1
    frame_bytes = len(payload) - len(quoted) + 2
    return EventPattern(payload[:start], payload[start + len(quoted) - 2 :], frame_bytes)


def _texts(event: Mapping[str, object]) -> list[Any]:
    choices = event.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        return []
    delta = choices[0].get("delta")
    channels = [delta.get(name) for name in _TEXTS] if isinstance(delta, dict) else []
    return [choices[0].get("text"), *channels]


@dataclass(slots=True)
class TokenStream:
    """The token events of one answer (stamps in nanoseconds, tokens in each) and its end.

    No column has an object per event. ``reported`` says for each event whether the server gave its
    number of tokens, ``thoughts`` whether it held reasoning and no answer. ``silent`` lists the
    events without text that may be no tokens, ``unspoken`` those that may be tokens and are not
    counted, ``ending`` is the empty event with a finish reason. ``counted`` is the sum of all
    tokens as they came, ``listed`` of those beyond the first of an event whose ids came. ``others``
    are the choices beside the first one, which are not read. ``first_event_ns`` is the stamp of the
    first event that a client could take for a token. ``is_lines`` says that the answer was lines of
    JSON, not server-sent events.
    """

    stamps_ns: "array[int]" = field(default_factory=lambda: array("q"))
    tokens: list[int] = field(default_factory=list)
    reported: bytearray = field(default_factory=bytearray)
    thoughts: bytearray = field(default_factory=bytearray)
    silent: list[int] = field(default_factory=list)
    unspoken: list[PlacedEvent] = field(default_factory=list)
    counted: int = 0
    listed: int = 0
    choice: str | None = None
    others: set[str] = field(default_factory=set)
    is_lines: bool = False
    usage: Mapping[str, object] = field(default_factory=dict)
    finished: bool = False
    done: bool = False
    first_event_ns: int | None = None
    ending: PlacedEvent | None = None
    failure: Failure | None = None
    pattern: EventPattern | None = None
    """The pattern of the last event, where an event that fits it holds one token of text too."""
    response_id: str = ""
    """The id that the server gave the answer, as in the server's log."""

    @property
    def output_tokens(self) -> int:
        """The number of output tokens: the server's count if sent, else the sum of events."""
        return self.usage_count("completion_tokens") or sum(self.tokens)

    @property
    def tokens_from(self) -> Literal["usage", "token_ids", "events", "none"]:
        """The source of ``output_tokens``; 'events' is a guess, since an event may hold several."""
        if self.usage_count("completion_tokens"):
            return "usage"
        return "token_ids" if self.reported and all(self.reported) else "events"

    @property
    def last_ns(self) -> int | None:
        """The stamp of the last token event."""
        return self.stamps_ns[-1] if self.stamps_ns else None

    @property
    def first_chunk_tokens(self) -> int:
        """The tokens up to the first event: all if it is alone, else the server's count, or 1."""
        if len(self.tokens) == 1:
            return self.output_tokens
        return self.unseen_tokens + self.tokens[0] if self.tokens else 0

    @property
    def first_chunk_told(self) -> bool:
        """Whether ``first_chunk_tokens`` is known rather than assumed."""
        return len(self.tokens) == 1 or any(self.reported[:1]) or self.unseen_tokens > 0

    @property
    def first_sure_ns(self) -> int | None:
        """The stamp of the first event that is surely a token: by its text or by the counts."""
        doubtful = sum(index == silent for index, silent in enumerate(self.silent))
        return self.stamps_ns[doubtful] if doubtful < len(self.stamps_ns) else None

    @property
    def first_output_ns(self) -> int | None:
        """The stamp of the first token event that is not reasoning."""
        pairs = zip(self.stamps_ns, self.thoughts, strict=True)
        return next((stamp_ns for stamp_ns, thought in pairs if not thought), None)

    @property
    def reasoning_tokens(self) -> int:
        """The output tokens that are reasoning: the server's count, else those of its channel."""
        count = self.usage_count("reasoning_tokens", "completion_tokens_details") or 0
        if 0 < count <= self.output_tokens:
            return count
        return sum(n for n, thought in zip(self.tokens, self.thoughts, strict=True) if thought)

    @property
    def unseen_tokens(self) -> int:
        """The reasoning of a server that counts it but sends nothing before the answer."""
        return 0 if any(self.thoughts) else self.reasoning_tokens

    @property
    def prompt_tokens(self) -> int | None:
        """The server's count of prompt tokens."""
        return self.usage_count("prompt_tokens")

    @property
    def cached_tokens(self) -> int:
        """The prompt tokens found in the server's prefix cache; 0 where it does not say."""
        return self.usage_count("cached_tokens", "prompt_tokens_details") or 0

    @property
    def cached_reported(self) -> bool:
        """Whether the server says what its prefix cache held of the prompt."""
        return self.usage_count("cached_tokens", "prompt_tokens_details") is not None

    def usage_count(self, name: str, part: str = "") -> int | None:
        """Return a count of the usage, or of a part of it; None where it is no whole number."""
        counts = self.usage.get(part) if part else self.usage
        count = counts.get(name) if isinstance(counts, Mapping) else None
        return count if type(count) is int else None


def take_event(stream: TokenStream, stamp_ns: int, payload: bytes) -> None:
    """Add an event to the stream; ``stamp_ns`` is when its last byte came."""
    if payload == b"[DONE]":
        stream.done = True
        return
    pattern = stream.pattern
    if pattern and pattern.fits(payload):
        stream.stamps_ns.append(stamp_ns)  # As in ``_count``: most events come here.
        stream.tokens.append(1)
        stream.reported.append(False)
        stream.thoughts.append(stream.thoughts[-1])
        stream.counted += 1
        return
    stream.pattern = None
    text = payload.decode(errors="replace")
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        event = None
    if isinstance(payload, ErrorData):
        message = error_message(text if event is None else event)
        stream.failure = Failure("sse_error", redact(message))
    elif not isinstance(event, dict):
        stream.failure = Failure("broken_stream", _not_an_object(text))
    elif event.get("error") or event.get("object") == "error":
        stream.failure = Failure("sse_error", redact(error_message(event)))
    elif piece := read_native(event):
        _take_piece(stream, stamp_ns, piece)
    else:
        before = len(stream.tokens)
        _take_choices(stream, stamp_ns, event)
        if len(stream.tokens) == before + 1 and not (stream.reported[-1] or event.get("usage")):
            stream.pattern = pattern_of(payload, event)


def take_run(
    stream: TokenStream, stamps_ns: Sequence[int], ends: Sequence[int], data: bytes
) -> bool:
    """Add server-sent events that are all like the last one, one to a piece; return whether so.

    ``data`` are all pieces; ``stamps_ns`` and ``ends`` of each say when it came and where it ends.
    """
    pattern = stream.pattern
    if pattern is None or stream.done or stream.failure:
        return False
    head, tail = b"data: " + pattern.before, pattern.after + b"\n\n"
    if not (data.startswith(head) and data.endswith(tail) and len(data) > len(head) + len(tail)):
        return False
    texts = data[len(head) : -len(tail)].split(tail + head)
    lengths = [len(text) + len(head) + len(tail) for text in texts if text]
    if [*accumulate(lengths)] != ends or _NEEDS_ESCAPE.search(b"".join(texts)):
        return False
    stream.stamps_ns.extend(stamps_ns)
    stream.tokens += [1] * len(texts)
    stream.reported += bytes(len(texts))
    stream.thoughts += stream.thoughts[-1:] * len(texts)
    stream.counted += len(texts)
    return True


def _not_an_object(text: str) -> str:
    return redact(f"not a JSON object: {hide_secrets(text, SHOWN)!r}")


def settle(stream: TokenStream) -> None:
    """Decide which events without text are tokens, at the end of a stream, by its usage."""
    made = None if stream.others else stream.usage_count("completion_tokens")
    if made == stream.counted - len(stream.silent):
        # keep-alives: the events with text hold all tokens that the server counted
        for index in reversed(stream.silent):
            for column in (stream.stamps_ns, stream.tokens, stream.reported, stream.thoughts):
                del column[index]
        stream.counted -= len(stream.silent)
    else:
        _count_without_text(stream, made)
    if made == stream.counted:
        stream.silent.clear()


def _count_without_text(stream: TokenStream, made: int | None) -> None:
    """Count the events without text that the usage shows to be tokens, by their number."""
    missing = 0 if made is None else made - stream.counted
    ending = [stream.ending] if stream.ending else []
    for events in ([*stream.unspoken, *ending], ending, stream.unspoken):
        if missing == len(events):
            break
    else:
        return
    for place, stamp_ns in sorted(events, reverse=True):
        stream.stamps_ns.insert(place, stamp_ns)
        stream.tokens.insert(place, 1)
        stream.reported.insert(place, True)
        stream.thoughts.insert(place, False)
    stream.counted += len(events)


def _take_piece(stream: TokenStream, stamp_ns: int, piece: NativeEvent) -> None:
    stream.first_event_ns = stream.first_event_ns or stamp_ns
    stream.usage = piece.usage or stream.usage
    stream.response_id = stream.response_id or piece.response_id
    stream.finished = stream.finished or piece.ends
    reported = piece.tokens if piece.made is None else max(piece.made - stream.counted, 0)
    if reported or (reported is None and piece.text):
        _count(stream, stamp_ns, reported or 1, reported=reported is not None)
    elif piece.ends:
        stream.ending = (len(stream.tokens), stamp_ns)
    if piece.error is not None:
        stream.failure = Failure("sse_error", redact(piece.error))


def _take_choices(stream: TokenStream, stamp_ns: int, event: dict[str, object]) -> None:
    if isinstance(usage := event.get("usage"), dict):
        stream.usage = usage
    stream.response_id = stream.response_id or str(event.get("id") or "")
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and _is_first(stream, choice):
            stream.first_event_ns = stream.first_event_ns or stamp_ns
            _take_choice(stream, stamp_ns, choice, _told_tokens(stream, event, choice))


def _is_first(stream: TokenStream, choice: Mapping[str, object]) -> bool:
    """Return whether an event is of the choice that came first; note another one."""
    index = str(choice.get("index") or 0)[:20]
    if stream.choice in (None, index):
        stream.choice = index
        return True
    stream.others.add(index)
    return False


def _told_tokens(
    stream: TokenStream, event: dict[str, object], choice: dict[str, object]
) -> int | None:
    """Return the number of tokens in this event; None where the server does not give it."""
    token_ids = choice.get("token_ids")
    if isinstance(token_ids, list) and token_ids:
        stream.listed += len(token_ids) - 1
        return len(token_ids)
    made = stream.usage_count("completion_tokens") if event.get("usage") else None
    return None if made is None else made - stream.counted


def _take_choice(
    stream: TokenStream, stamp_ns: int, choice: dict[str, object], told_tokens: int | None
) -> None:
    ends = choice.get("finish_reason") is not None
    stream.finished = stream.finished or ends
    reported = max(told_tokens or 0, 0)
    text = choice.get("text")
    blank = text == "" and not ends and told_tokens != 0
    delta = choice.get("delta") or choice.get("message")
    channels = delta if isinstance(delta, dict) else {}
    answer = text or channels.get("content")
    answer = answer or channels.get("refusal") or channels.get("tool_calls")
    thought = channels.get("reasoning") or channels.get("reasoning_content")
    if answer or thought or blank or (reported and not ends):
        if blank and not reported:
            stream.silent.append(len(stream.tokens))
        thinks = bool(thought and not answer)
        _count(stream, stamp_ns, reported or 1, reported=reported > 0, thought=thinks)
    elif ends:
        stream.ending = (len(stream.tokens), stamp_ns)
    elif channels.keys() <= {"content"}:
        stream.unspoken.append((len(stream.tokens), stamp_ns))


def _count(
    stream: TokenStream, stamp_ns: int, tokens: int, *, reported: bool, thought: bool = False
) -> None:
    stream.stamps_ns.append(stamp_ns)
    stream.tokens.append(tokens)
    stream.counted += tokens
    stream.reported.append(reported)
    stream.thoughts.append(thought)
