"""What one event of a native stream says, in the words that all dialects share."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class NativeEvent(NamedTuple):
    """One event.

    ``tokens`` are in this event, ``made`` have come with it and all before it: None where the
    server does not say. An event that says neither holds a token if it has ``text``. ``ends`` marks
    the last one, ``error`` one that reports a failure. ``usage`` has OpenAI's names.
    """

    tokens: int | None = None
    made: int | None = None
    text: bool = False
    ends: bool = False
    usage: Mapping[str, Any] | None = None
    response_id: str = ""
    error: str | None = None


def usage_of(prompt: object, completion: object, cached: object = None) -> dict[str, Any]:
    """OpenAI's usage of the counts that were told."""
    usage: dict[str, Any] = {}
    if (tokens := count(prompt)) is not None:
        usage["prompt_tokens"] = tokens
    if (tokens := count(completion)) is not None:
        usage["completion_tokens"] = tokens
    if (tokens := count(cached)) is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": tokens}
    return usage


def count(value: object) -> int | None:
    """A number of things, None where it is none."""
    return value if type(value) is int and value >= 0 else None


def fields_of(value: object) -> Mapping[str, Any]:
    """A JSON object, empty where it is none."""
    return value if isinstance(value, Mapping) else {}
