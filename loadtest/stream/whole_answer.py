"""Reads an answer that was not streamed: one JSON object, with text and usage or an embedding.

It has one stamp, that of its last byte, and so neither a first token nor gaps between tokens.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

import httpx

from servetwin.loadtest.dialects.server_probe import fields_of
from servetwin.loadtest.http.exchange import Exchange, Failure, error_message
from servetwin.loadtest.http.recorded_reads import RecordedReads
from servetwin.loadtest.redaction import hide_secrets, redact
from servetwin.loadtest.stream.stream_reader import decoded
from servetwin.loadtest.stream.token_events import TokenStream

_START_CHARACTERS = 80
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]*\})')
_VECTOR = re.compile(rb'"embedding"\s*:\s*(\[\s*-?[0-9]|"[^"])')


@dataclass(slots=True)
class WholeAnswer(TokenStream):
    """What is known of an answer that came whole, at ``ended_ns``; it has no token events."""

    ended_ns: int | None = None
    embedding: bool = False

    @property
    def last_ns(self) -> int | None:
        """The stamp of the last byte."""
        return self.ended_ns

    @property
    def output_tokens(self) -> int:
        """The server's count of output tokens; 0 where it does not say, and of an embedding."""
        return 0 if self.embedding else self.usage_count("completion_tokens") or 0

    @property
    def tokens_from(self) -> Literal["usage", "token_ids", "events", "none"]:
        """The usage, or nothing."""
        known = self.embedding or self.usage_count("completion_tokens")
        return "usage" if known else "none"

    @property
    def first_chunk_told(self) -> bool:
        """Always true: there is no first chunk whose tokens could be wrong."""
        return True


class WholeAnswerReader:
    """Reads the answer when it has ended; has the interface of a ``StreamReader``."""

    def __init__(self, exchange: Exchange, *, embedding: bool) -> None:
        self._exchange = exchange
        self.stream = WholeAnswer(embedding=embedding)
        self.pieces = 0

    def advance(self, most: int) -> int:
        """Read an answer that has ended, so that its bytes can go."""
        if self._exchange.ended and not self.pieces:
            self.end()
        return 0

    def end(self) -> WholeAnswer:
        """Read an answer that has ended, set its failure, and return it."""
        if not self.pieces:
            self.pieces = 1
            self.stream.failure = self._exchange.failure or self._read()
            self._exchange.reads = RecordedReads()
        return self.stream

    def _read(self) -> Failure | None:
        """Take what the body says; return what is wrong with it."""
        reads = list(self._exchange.reads)
        try:
            body = b"".join(data for _, data in decoded(self._exchange))
        except httpx.DecodingError as error:
            return Failure("broken_stream", redact(str(error)))
        self.stream.ended_ns = reads[-1][0] if reads else None
        return self._take_embedding(body) if self.stream.embedding else self._take_text(body)

    def _take_embedding(self, body: bytes) -> Failure | None:
        """Take the usage; a vector has thousands of figures, which are not parsed."""
        if usage := _USAGE.search(body):
            self.stream.usage = json_object(usage[1]) or {}
        if _VECTOR.search(body) and body.count(b"{") == body.count(b"}"):
            self.stream.finished = self.stream.done = True
            return None
        return self._take_text(body) or _without("embedding", body)

    def _take_text(self, body: bytes) -> Failure | None:
        answer = json_object(body)
        if answer is None:
            return Failure("broken_stream", f"not one JSON object; the body begins {_start(body)}")
        if answer.get("error") or answer.get("object") == "error":
            return Failure("sse_error", redact(error_message(answer)))
        self.stream.usage = fields_of(answer.get("usage"))
        self.stream.response_id = str(answer.get("id") or "")
        choices = answer.get("choices")
        if self.stream.embedding:
            return None
        if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
            return _without("choices", body)
        self.stream.finished = self.stream.done = True
        has_text = choices[0].get("text") or choices[0].get("message")
        self.stream.others = set(map(str, range(1, len(choices))))
        if not (has_text or self.stream.output_tokens):
            return Failure("no_token", f"no text; the body begins {_start(body)}")
        return None


def _without(field: str, body: bytes) -> Failure:
    return Failure("no_token", f"no {field}; the body begins {_start(body)}")


def _start(body: bytes) -> str:
    return repr(hide_secrets(body.decode(errors="replace"), _START_CHARACTERS))


def json_object(body: bytes | bytearray) -> dict[str, Any] | None:
    """Return the JSON object that a body is; None where it is none."""
    try:
        answer = json.loads(body.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
