"""One event of a native stream, in the terms that all dialects share."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class NativeEvent(NamedTuple):
    """One event of a native stream.

    ``tokens`` are the tokens in this event, ``made`` those in it and all events before it; None
    where the server does not say. With neither, an event holds one token if it has ``text``.
    ``ends`` marks the last event, ``error`` a failure. ``usage`` has OpenAI's names.
    """

    tokens: int | None = None
    made: int | None = None
    text: bool = False
    ends: bool = False
    usage: Mapping[str, Any] | None = None
    response_id: str = ""
    error: str | None = None


def usage_of(prompt: object, completion: object, cached: object = None) -> dict[str, object]:
    """Return OpenAI's usage object with the counts that are known."""
    counts = {"prompt_tokens": count(prompt), "completion_tokens": count(completion)}
    usage: dict[str, object] = {name: known for name, known in counts.items() if known is not None}
    if (tokens := count(cached)) is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": tokens}
    return usage


def count(value: object) -> int | None:
    """Return a whole number from 0 on; None for any other value."""
    return value if type(value) is int and value >= 0 else None


def fields_of(value: object) -> Mapping[str, Any]:
    """Return a JSON object; an empty one for any other value."""
    return value if isinstance(value, Mapping) else {}
