"""Real prompts: a text, or the messages of a chat, and about how many tokens they have."""

from collections.abc import Iterator, Sequence
from typing import Any

from servetwin.workloads.fields import text
from servetwin.workloads.request import Message, PromptContent
from servetwin.workloads.rows import RowError

# About what tokenizers of large vocabularies make of English; of code and other languages less.
BYTES_PER_TOKEN = 4


def prompt_content(name: str, value: Any) -> PromptContent:
    """Check a prompt: a text that is not empty, or a list of messages."""
    if isinstance(value, list):
        return messages(name, value)
    if not text(name, value).strip():
        raise RowError(name, "empty", value)
    return str(value)


def messages(name: str, value: Any) -> tuple[Message, ...]:
    """Check a list of messages, at least one of which has text or parts."""
    if not isinstance(value, list) or not value:
        raise RowError(name, "not a list of messages", value)
    for index, message in enumerate(value):
        place = f"{name}[{index}]"
        if not isinstance(message, dict):
            raise RowError(place, "not an object with role and content", message)
        if not text(f"{place}.role", message.get("role")):
            raise RowError(f"{place}.role", "empty", "")
        _check_content(f"{place}.content", message.get("content"))
    if not any(message.get("content") for message in value):
        raise RowError(name, "no message has content", value)
    return tuple(value)


def texts_of(content: PromptContent) -> Iterator[str]:
    """Yield every text of a prompt: itself, or those of its messages and their parts."""
    if isinstance(content, str):
        yield content
        return
    for message in content:
        parts = message.get("content")
        if isinstance(parts, str):
            yield parts
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part.get("text"), str):
                yield part["text"]


def estimated_tokens(texts: Sequence[str]) -> int:
    """Estimate the tokens of some texts by their bytes, at least 1."""
    size_bytes = sum(len(text.encode(errors="surrogatepass")) for text in texts)
    return max(1, -(-size_bytes // BYTES_PER_TOKEN))


def _check_content(place: str, content: Any) -> None:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise RowError(place, "neither a text nor a list of parts", content)
    for index, part in enumerate(content):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise RowError(f"{place}[{index}]", "not a part with its type", part)
