"""Most events of a stream differ in their text alone: such a one need not be decoded to be counted.

Two JSON documents with the same bytes around one string, which holds text in both and nothing that
needs an escape, have the same structure.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_NEEDS_ESCAPE = re.compile(rb'["\\\x00-\x1f]')
_TEXTS = ("content", "reasoning", "reasoning_content")


class EventPattern(NamedTuple):
    """The bytes before and after the text of an event that held one token."""

    before: bytes
    after: bytes

    def fits(self, payload: bytes) -> bool:
        """Whether this event is like it, but for the text."""
        start, end = len(self.before), len(payload) - len(self.after)
        return (
            start < end
            and payload.startswith(self.before)
            and payload.endswith(self.after)
            and not _NEEDS_ESCAPE.search(payload, start, end)
        )


def pattern_of(payload: bytes, event: Mapping[str, Any]) -> EventPattern | None:
    """The pattern of an event of OpenAI's API; None where its text is not found in it just once."""
    texts = [text for text in _texts(event) if isinstance(text, str) and text]
    quoted = b'"%b"' % texts[0].encode(errors="surrogatepass") if len(texts) == 1 else b""
    if not quoted or payload.count(quoted) != 1:
        return None
    start = payload.index(quoted) + 1
    return EventPattern(payload[:start], payload[start + len(quoted) - 2 :])


def _texts(event: Mapping[str, Any]) -> list[Any]:
    choices = event.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        return []
    delta = choices[0].get("delta")
    channels = [delta.get(name) for name in _TEXTS] if isinstance(delta, dict) else []
    return [choices[0].get("text"), *channels]
