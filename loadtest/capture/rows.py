"""Rows of a trace from requests that passed: their times, lengths, sessions and repeated blocks."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from servetwin.loadtest.capture.tunnel import Passing
from servetwin.loadtest.stream.doubts import drop_doubted_usage
from servetwin.loadtest.stream.token_events import TokenStream
from servetwin.loadtest.stream.whole_answer import json_object
from servetwin.workloads.anonymous import Anonymiser
from servetwin.workloads.readers.prompt_fields import estimated_tokens
from servetwin.workloads.request import BLOCK_TOKENS

REQUEST = ("x-request-id", "request_id")
SESSION = (
    "x-session-id", "session-id", "x-conversation-id", "x-correlation-id",
    "session_id", "conversation_id", "prompt_cache_key",
)  # fmt: skip
# Where clients name these: header fields and fields of the body.
PARENT = ("x-parent-request-id", "x-parent-id", "parent_request_id", "parent_id", "parent_ids")
_MOST_TOKENS = 2**31 - 1


class Rows:
    """Makes a row of each request, in the order in which they end.

    Parents that a client names count where they have ended; else the parent is the turn of the same
    session that ended last. Delays count from the end of the last parent.
    """

    def __init__(self, anonymiser: Anonymiser, began_ns: int) -> None:
        self._anonymiser = anonymiser
        self._began_ns = began_ns
        self._ended_ns: dict[str, int] = {}
        # The id and the number of the last request of a session that has ended.
        self._turns: dict[str, tuple[str, int]] = {}

    def of(self, passing: Passing, stream: TokenStream, ended_ns: int) -> dict[str, Any]:
        """Return the fields of a row that have a value."""
        body, sent_ns = json_object(passing.body) or {}, passing.exchange.sent_ns or ended_ns
        said = {name.decode("latin-1").lower(): value for name, value in passing.fields}
        name = self._name(said, body, REQUEST)
        if name is None or name in self._ended_ns:
            name = self._anonymiser.name(f"request {len(self._ended_ns)}")
        row = {
            "request_id": name,
            "arrival_s": (sent_ns - self._began_ns) / 1e9,
            **self._lengths(body, stream, passing),
            **self._links(said, body, name, sent_ns),
            "model": self._optional(body.get("model")),
            "status": "failed" if stream.failure else "ok",
            "error": stream.failure and stream.failure.kind,
        }
        self._ended_ns[name] = stream.last_ns or ended_ns
        return {key: value for key, value in row.items() if value not in (None, (), [])}

    def _lengths(self, body: Any, stream: TokenStream, passing: Passing) -> dict[str, Any]:
        parts = list(prompt_of(body))
        drop_doubted_usage(stream, most_tokens(body))
        known = stream.prompt_tokens
        prompt_tokens = estimated_tokens([*map(_text, parts)]) if known is None else known
        answered = {
            "first_token_s": next(iter(stream.stamps_ns), None),
            "last_token_s": stream.last_ns,
        }
        return {
            "prompt_tokens": prompt_tokens,
            "output_tokens": stream.output_tokens
            if stream.failure
            else max(1, stream.output_tokens),
            "reasoning_tokens": stream.reasoning_tokens or None,
            "cached_tokens": stream.cached_tokens if stream.cached_reported else None,
            "block_tokens": BLOCK_TOKENS,
            "prefix_block_ids": self._anonymiser.block_ids(parts, prompt_tokens),
            **{key: at and (at - self._began_ns) / 1e9 for key, at in answered.items()},
        }

    def _links(
        self, said: Mapping[str, bytes], body: Any, name: str, sent_ns: int
    ) -> dict[str, Any]:
        session = self._name(said, body, SESSION)
        named = [self._anonymiser.name(one) for one in _values(said, body, PARENT)]
        before, number = self._turns.get(session or "", (None, -1))
        parents = [one for one in named if one in self._ended_ns]
        if before and not parents:
            parents = [before]
        if session:
            self._turns[session] = name, number + 1
        latest_ns = max((self._ended_ns[one] for one in parents), default=None)
        return {
            "session_id": session,
            "turn": number + 1 if session else None,
            "parent_ids": parents,
            "delay_s": None if latest_ns is None else max(0, sent_ns - latest_ns) / 1e9,
        }

    def _name(self, said: Mapping[str, bytes], body: Any, places: tuple[str, ...]) -> str | None:
        return self._optional(next(_values(said, body, places), None))

    def _optional(self, text: Any) -> str | None:
        return self._anonymiser.name(text) if isinstance(text, str) and text else None


def _values(said: Mapping[str, bytes], body: Any, places: tuple[str, ...]) -> Iterator[str]:
    for place in places:
        if place in said:
            yield said[place].decode("latin-1")
        value = body.get(place)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and one:
                yield one


def prompt_of(body: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what a prompt consists of: its tools, then its messages, or its text or token ids."""
    for key in ("tools", "messages", "prompt"):
        value = body.get(key)
        if isinstance(value, list) and key != "prompt":
            yield from value
        elif value:
            yield value


def most_tokens(body: Mapping[str, Any]) -> int:
    """Return the most tokens that a request allows."""
    limits = (body.get("max_completion_tokens"), body.get("max_tokens"))
    return next((limit for limit in limits if type(limit) is int and limit > 0), _MOST_TOKENS)


def _text(part: Any) -> str:
    return part if isinstance(part, str) else json.dumps(part)
