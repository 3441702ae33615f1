"""What the name of a column says that it holds, whatever its case, its order and its marks.

A name is taken where *all* of its words are known: ``prompt_tokens``, ``Input Tokens (count)`` and
``usage.prompt_tokens`` are the tokens of the prompt; ``prompt_tokens_price`` is nothing.
"""

import re
from functools import cache

from servetwin.workloads.tables.mapping import (
    ANSWER,
    ARRIVAL,
    E2E,
    ERROR,
    FIRST_TOKEN,
    LAST_TOKEN,
    OUTPUT_TOKENS,
    PREFIX,
    PREFIX_TOKENS,
    PROMPT,
    PROMPT_TOKENS,
    QUEUE,
    SESSION,
    STATUS,
    TTFT,
)

_PIECE = re.compile(r"[A-Za-z0-9]+")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")
_UNITS = {
    "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "ms": "ms", "msec": "ms", "millis": "ms", "millisecond": "ms", "milliseconds": "ms",
    "us": "us", "usec": "us", "micros": "us", "microsecond": "us", "microseconds": "us",
    "ns": "ns", "nsec": "ns", "nanos": "ns", "nanosecond": "ns", "nanoseconds": "ns",
}  # fmt: skip
_EMPTY = frozenset(["num", "n", "of", "the", "usage", "llm", "attributes", "body"])
_TOKENS = frozenset(("tokens", "token", "tok", "toks"))
_LENGTHS = frozenset(("length", "len", "lengths", "lens"))
"""Of a request or a response it may be one in bytes, of a context the longest that a model has."""
_COUNT = frozenset(("count", "counts"))
_ASKED = frozenset(("prompt", "input", "prefill", "in"))
_ASKED_IN_TOKENS = _ASKED | frozenset(("context", "request", "query", "question"))
_ANSWERED = frozenset(["output", "completion", "generated", "generation", "gen", "out", "decode"])
_ANSWERED_IN_TOKENS = _ANSWERED | frozenset(("response", "answer", "reply"))
_COUNTED_ALONE = {
    **dict.fromkeys(("prompt", "input", "in"), PROMPT_TOKENS),
    **dict.fromkeys(("output", "out", "completion", "generated"), OUTPUT_TOKENS),
}
"""Words that may stand for a count of tokens without saying so."""

_PHRASES: dict[str, tuple[str, ...]] = {
    PROMPT_TOKENS: ("isl", "input sequence length"),
    OUTPUT_TOKENS: ("osl", "output sequence length"),
    PROMPT: (
        "prompt", "input", "question", "query", "prompt text", "input text", "request text",
        "user prompt", "user message", "text",
    ),
    ANSWER: (
        "answer", "completion", "response", "output", "reply", "output text", "completion text",
        "response text", "answer text", "generated text", "generated output",
    ),
    TTFT: (
        "ttft", "time to first token", "first token latency", "first token time",
        "latency first token", "prefill latency",
    ),
    E2E: (
        "e2e", "e2el", "latency", "e2e latency", "end to end latency", "total latency",
        "request latency", "response latency", "duration", "request duration", "total duration",
        "elapsed", "elapsed time", "response time", "total time", "request time", "processing time",
        "e2e time", "end to end",
    ),
    QUEUE: ("queue", "queue time", "queueing time", "queuing time", "wait time", "waiting time"),
    FIRST_TOKEN: ("first token at", "first token timestamp", "first token ts", "first token time"),
    LAST_TOKEN: (
        "last token at", "last token timestamp", "last token time", "end time", "ended at",
        "finish time", "finished at", "completed at", "completion time", "end timestamp", "end",
        "finish timestamp", "completion timestamp",
    ),
    STATUS: (
        "status", "status code", "http status", "http status code", "code", "http code", "outcome",
        "result", "success", "succeeded", "ok", "response code", "response status", "finish reason",
        "request status", "response status code", "is success", "state",
    ),
    ERROR: ("error", "error message", "err", "error code", "exception", "error type", "failed"),
    SESSION: (
        "session", "session id", "conversation", "conversation id", "chat id", "chat", "thread",
        "thread id", "dialog id", "dialogue id", "conv id",
    ),
    PREFIX: ("prefix", "prefix id", "prefix hash", "prefix group", "system prompt id"),
    PREFIX_TOKENS: (
        "prefix tokens", "shared prefix tokens", "prefix length", "prefix len",
        "system prompt tokens",
    ),
    "cached_tokens": (
        "cached tokens", "cached", "prompt cached tokens", "cached prompt tokens",
        "cached input tokens", "input cached tokens", "cache hit tokens",
        "prompt tokens details cached tokens",
    ),
    "request_id": ("request id", "req id", "id", "trace id", "span id", "uuid", "request uuid"),
    "model": ("model", "model name", "model id"),
    "tenant": ("tenant", "tenant id", "customer", "customer id", "organization", "org", "org id"),
}  # fmt: skip
_BY_PHRASE: dict[tuple[str, ...], list[str]] = {}
for _quantity, _phrases in _PHRASES.items():
    for _phrase in _phrases:
        _BY_PHRASE.setdefault(tuple(_phrase.split()), []).append(_quantity)

_ARRIVES = frozenset(("arrival", "arrive", "arrived", "arrivals"))
_BEGINS = frozenset((
    "timestamp", "timestamps", "ts", "start", "started", "begin", "begun", "created",
    "received", "sent", "submitted", "submit", "datetime", "issued", "enqueued",
))  # fmt: skip
_MOMENTS = frozenset(["time", "times", "t", "at", "date", "stamp", "epoch"])
_BESIDE = frozenset(["request", "requested", "utc", "gmt", "unix", "iso", "event", "on", "log"])


@cache
def meanings(name: str) -> tuple[str, ...]:
    """Return the quantities that a column of this name may hold, the likeliest first."""
    words = tuple(word for word in _words(name) if word not in _EMPTY)
    bare = _without_unit(words)
    found = [*_BY_PHRASE.get(words, ()), *_BY_PHRASE.get(bare, ())]
    if counted := _tokens(words):
        found.insert(0, counted)
    if _is_arrival(bare):
        found.append(ARRIVAL)
    return tuple(dict.fromkeys(found))


def unit_in(name: str) -> str | None:
    """Return the unit of time that a name ends with, as in ``ttft_ms`` or ``Latency (s)``."""
    words = _words(name)
    return _UNITS.get(words[-1]) if len(words) > 1 else None


def says_arrival(name: str) -> bool:
    """Return whether a name says arrival, and no other beginning."""
    return not _ARRIVES.isdisjoint(_words(name))


def says_tokens(name: str) -> bool:
    """Return whether a name says tokens, so that no number in it is any other count."""
    return not _TOKENS.isdisjoint(_words(name))


def is_plain_time(name: str) -> bool:
    """Return whether a name may be a duration as well as a moment."""
    return (_ARRIVES | _BEGINS).isdisjoint(_words(name))


def _words(name: str) -> tuple[str, ...]:
    pieces = _PIECE.findall(name.replace("gen_ai", ""))
    split = (_WORD.findall(piece) if not piece.isupper() else [piece] for piece in pieces)
    return tuple(word.lower() for words in split for word in words)


def _without_unit(words: tuple[str, ...]) -> tuple[str, ...]:
    return words[:-1] if len(words) > 1 and words[-1] in _UNITS else words


def _tokens(words: tuple[str, ...]) -> str | None:
    if len(words) == 1:
        return _COUNTED_ALONE.get(words[0])
    said = set(words) - _COUNT
    if said & _TOKENS:
        asks, answers, units = _ASKED_IN_TOKENS, _ANSWERED_IN_TOKENS, _TOKENS | _LENGTHS
    else:
        asks, answers, units = _ASKED, _ANSWERED, _LENGTHS
    kind = said - units
    if not said & units or not kind:
        return None
    return PROMPT_TOKENS if kind <= asks else OUTPUT_TOKENS if kind <= answers else None


def _is_arrival(words: tuple[str, ...]) -> bool:
    said = set(words)
    if said - _ARRIVES - _BEGINS - _MOMENTS - _BESIDE:
        return False
    return bool(said & (_ARRIVES | _BEGINS | _MOMENTS))
