"""A request for text, parsed from its JSON body."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from servetwin.loadtest.stream.whole_answer import json_object

# The field of a body that has its prompt: of completions, of a chat, of an embedding.
PromptField = Literal["prompt", "messages", "input"]

_IMAGES = ("http://", "https://", "data:image/")

# The default of OpenAI's completions, for a request without ``max_tokens``.
DEFAULT_TOKENS = 16
MOST_TOKENS = 1_000_000


class BadRequest(Exception):
    """A request that is answered with an error; ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """One request for text, or for an embedding, which has no ``max_tokens``.

    ``index`` is its place in the order of arrival, from 0; its prompt is in ``field``.
    """

    index: int
    model: str
    field: PromptField
    stream: bool
    include_usage: bool
    max_tokens: int
    prompt_tokens: int

    @property
    def chat(self) -> bool:
        """Whether it comes on the chat API."""
        return self.field == "messages"

    @property
    def request_id(self) -> str:
        """The ``id`` in every event of the answer."""
        return f"mock-{self.index}"


def parse_request(
    index: int, field: PromptField, body: bytes, models: Sequence[str]
) -> ParsedRequest:
    """Parse a JSON ``body``. Raises ``BadRequest`` saying what is wrong with it."""
    fields = _fields(body)
    options = fields.get("stream_options")
    if fields.get("n") not in (None, 1):
        raise BadRequest(400, "n: the mock gives one answer; leave it out, or send it as requests")
    return ParsedRequest(
        index,
        _model(fields, models),
        field,
        stream=fields.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        max_tokens=0 if field == "input" else _max_tokens(fields),
        prompt_tokens=_prompt_tokens(fields, field),
    )


def _model(fields: Mapping[str, object], models: Sequence[str]) -> str:
    wanted = fields.get("model", models[0])
    if wanted not in models:
        served = ", ".join(map(repr, models))
        raise BadRequest(404, f"the model {wanted!r} does not exist; served is {served}")
    return str(wanted)


def _fields(body: bytes) -> dict[str, object]:
    fields = json_object(body)
    if fields is None:
        raise BadRequest(400, "the body is not a JSON object")
    return fields


def _max_tokens(fields: dict[str, object]) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        count = fields.get(name)
        if count is None:
            continue
        if type(count) is not int or not 1 <= count <= MOST_TOKENS:
            raise BadRequest(400, f"{name} must be a whole number from 1 to {MOST_TOKENS:,}")
        return count
    return DEFAULT_TOKENS


def _prompt_tokens(fields: dict[str, object], name: PromptField) -> int:
    """Count token ids, or words, and none for an image: a mock has no tokenizer."""
    prompt = fields.get(name)
    if isinstance(prompt, str):
        return len(prompt.split())
    if not isinstance(prompt, list):
        raise BadRequest(400, f"{name} is missing")
    if name != "messages":
        return len(prompt)
    contents = [message.get("content") for message in prompt if isinstance(message, dict)]
    return sum(_words(content) for content in contents)


def _words(content: Any) -> int:
    """Count the words of a message: of its text, or of the texts among its parts."""
    if isinstance(content, str):
        return len(content.split())
    parts = content if isinstance(content, list) else []
    return sum(_words_of_part(part) for part in parts)


def _words_of_part(part: Any) -> int:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return len(part["text"].split())
    image = part.get("image_url") if kind == "image_url" else None
    if isinstance(image, dict) and str(image.get("url", "")).startswith(_IMAGES):
        return 0
    wanted = "a text, or an image_url with an http or a data URL"
    raise BadRequest(400, f"messages: a part of the content is not {wanted}")
