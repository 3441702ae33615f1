"""Request bodies of the API: OpenAI's fields, and which of them the engine implements.

Unknown fields are ignored, as OpenAI-compatible servers do; a null means that the field is absent.
Fields that are known but not implemented must have the value that changes nothing.
"""

from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from engine.http.api_errors import ApiError
from engine.models import tokenizer
from engine.models.sampling_params import SamplingParams, temperature_problem

_NEUTRAL: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("n", "best_of", "top_p", "repetition_penalty"), (1,)),
    **dict.fromkeys(("top_logprobs", "min_p", "presence_penalty", "frequency_penalty"), (0,)),
    **dict.fromkeys(("logprobs", "echo"), (False,)),
    **dict.fromkeys(("tools", "functions"), ([],)),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "top_k": (-1, 0),
    "logit_bias": ({},),
}
_EXPECTED = {
    "prompt": "must be a string, a list of token ids, or a list with exactly one of these",
    "stop": "must be a non-empty string or a list of at most 4 of them",
    "stream_options": 'must be an object, such as {"include_usage": true}',
    "messages": "must be a non-empty list of {role, content} with a known role and text content",
}

StopString = Annotated[str, Field(min_length=1)]


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class StreamOptions(_Body):
    """What a stream carries besides its tokens."""

    include_usage: bool = False


class GenerationBody(_Body, ABC):
    """What completions and chat completions have in common."""

    model: str | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    min_tokens: int = Field(0, ge=0)
    temperature: float = Field(0.0, ge=0, allow_inf_nan=False)
    """OpenAI's default is 1; here the default is greedy, so that runs repeat."""
    seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 63)
    ignore_eos: bool = False
    stop: StopString | Annotated[list[StopString], Field(max_length=4)] = Field([])
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    return_token_ids: bool = False

    @abstractmethod
    def prompt_ids(self, vocab_size: int) -> list[int]:
        """Return the prompt as token ids.

        Raises ``ApiError`` for a prompt that the model cannot take.
        """

    def sampling(self, default_max_tokens: int) -> SamplingParams:
        """Return the sampling parameters.

        Raises ``ApiError`` where they contradict each other.
        """
        max_tokens = self.max_completion_tokens or self.max_tokens or default_max_tokens
        if self.min_tokens > max_tokens:
            message = f"min_tokens: {self.min_tokens} is more than max_tokens, {max_tokens}"
            raise ApiError(400, message, param="min_tokens")
        if problem := temperature_problem(self.temperature):
            raise ApiError(400, f"temperature: {problem}", param="temperature")
        return SamplingParams(
            max_tokens=max_tokens,
            min_tokens=self.min_tokens,
            temperature=self.temperature,
            seed=self.seed,
            ignore_eos=self.ignore_eos,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
        )


class CompletionBody(GenerationBody):
    """Body of ``POST /v1/completions``."""

    prompt: str | list[int] | list[str] | list[list[int]]

    def prompt_ids(self, vocab_size: int) -> list[int]:
        """Return the prompt's bytes as tokens, or the given ids."""
        prompt = _only(self.prompt)
        ids = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        if not ids:
            raise ApiError(400, "prompt: is empty", param="prompt")
        if min(ids) < 0 or max(ids) >= vocab_size:
            wrong = next(token for token in ids if not 0 <= token < vocab_size)
            message = f"prompt: token id {wrong} is not in the vocabulary, 0 .. {vocab_size - 1}"
            raise ApiError(400, message, param="prompt")
        return ids


class TextPart(_Body):
    """A piece of a chat message; only text is understood."""

    type: Literal["text"]
    text: str


class ChatMessage(_Body):
    """One turn of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    def text(self) -> str:
        """Return the content as one string."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class ChatBody(GenerationBody):
    """Body of ``POST /v1/chat/completions``."""

    messages: list[ChatMessage] = Field(min_length=1)

    def prompt_ids(self, vocab_size: int) -> list[int]:
        """Return the messages in a plain template that ends with the assistant's role."""
        turns = [f"{message.role}: {message.text()}\n" for message in self.messages]
        return tokenizer.encode("".join(turns) + "assistant:")


BodyT = TypeVar("BodyT", bound=GenerationBody)


def parse_body(kind: type[BodyT], raw: bytes) -> BodyT:
    """Return the validated body.

    Raises ``ApiError`` (400) that names the first field that is wrong.
    """
    fields = _fields(raw)
    _check_neutral(fields)
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        param = str(first["loc"][0])
        reason = "is required" if first["type"] == "missing" and len(first["loc"]) == 1 else None
        message = reason or _EXPECTED.get(param) or first["msg"]
        raise ApiError(400, f"{param}: {message}", param=param) from None


def _fields(raw: bytes) -> dict[str, Any]:
    try:
        body = from_json(raw)
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(body, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    return {name: value for name, value in body.items() if value is not None}


def _check_neutral(fields: dict[str, Any]) -> None:
    for name, neutral in _NEUTRAL.items():
        if name in fields and fields[name] not in neutral:
            raise ApiError(
                400, f"{name}: this server supports only {neutral[0]!r}", param=name,
                code="unsupported_parameter",
            )  # fmt: skip


def _only(prompt: str | list[int] | list[str] | list[list[int]]) -> str | list[int]:
    """Return the one prompt of a list of prompts."""
    if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], int):
        return cast("str | list[int]", prompt)
    if len(prompt) > 1:
        message = f"prompt: {len(prompt)} prompts in one request are not supported; send one each"
        raise ApiError(400, message, param="prompt")
    return prompt[0]
