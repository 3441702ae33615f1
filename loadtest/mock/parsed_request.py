"""A request for text, parsed from its JSON body."""

import json
from dataclasses import dataclass
from typing import Any

DEFAULT_TOKENS = 16
"""The default of OpenAI's completions, for a request without ``max_tokens``."""


class BadRequest(Exception):
    """A request that is answered with an error; ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """One request for text; ``index`` is its place in the order of arrival, from 0."""

    index: int
    chat: bool
    stream: bool
    include_usage: bool
    max_tokens: int
    prompt_tokens: int

    @property
    def request_id(self) -> str:
        """The ``id`` in every event of the answer."""
        return f"mock-{self.index}"


def parse_request(index: int, chat: bool, body: bytes, model: str) -> ParsedRequest:
    """Parse a JSON ``body``. Raises ``BadRequest`` saying what is wrong with it."""
    fields = _fields(body)
    wanted = fields.get("model", model)
    if wanted != model:
        raise BadRequest(404, f"the model {wanted!r} does not exist; served is {model!r}")
    options = fields.get("stream_options")
    return ParsedRequest(
        index,
        chat,
        stream=fields.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        max_tokens=_max_tokens(fields),
        prompt_tokens=_prompt_tokens(fields, "messages" if chat else "prompt"),
    )


def _fields(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise BadRequest(400, "the body is not a JSON object")
    return fields


def _max_tokens(fields: dict[str, Any]) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        count = fields.get(name)
        if count is None:
            continue
        if type(count) is not int or count < 1:
            raise BadRequest(400, f"{name} must be a whole number of at least 1")
        return count
    return DEFAULT_TOKENS


def _prompt_tokens(fields: dict[str, Any], name: str) -> int:
    """Count token ids, or words: a mock has no tokenizer."""
    prompt = fields.get(name)
    if isinstance(prompt, str):
        return len(prompt.split())
    if not isinstance(prompt, list):
        raise BadRequest(400, f"{name} is missing")
    if name == "prompt":
        return len(prompt)
    contents = (message.get("content") for message in prompt if isinstance(message, dict))
    return sum(len(content.split()) for content in contents if isinstance(content, str))
