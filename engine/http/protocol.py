"""Request bodies of the API: OpenAI's fields, which of them the engine implements, and what a body
asks for, checked against the model.

Unknown fields are ignored, as OpenAI-compatible servers do; a null means that the field is absent.
Fields that would change the answer and are not implemented must have the value that changes
nothing. What no request of the model needs is refused by its number of values, before they are
decoded; validation ends at the first item of a list that is wrong.
"""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

from pydantic import Field, ValidationError, model_validator
from pydantic_core import from_json

from servetwin.engine.http import sampling_fields
from servetwin.engine.http.answers import Echo
from servetwin.engine.http.api_errors import ApiError, unknown_model, wrong_field
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.text.byte_tokenizer import ByteTokenizer
from servetwin.engine.text.tokenizer import Chat, ChatError, Tokenizer, decoded

COMPLETION_DEFAULT_MAX_TOKENS = 16
# Prompts in one request.
MAX_PROMPTS = 128
# Answers to one request.
MAX_CHOICES = 1024
# The most values of a body beside its prompts.
OTHER_VALUES = 10_000
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


class StreamOptions(sampling_fields.JsonObject):
    """What a stream carries besides its tokens."""

    include_usage: bool = False


class GenerationBody(sampling_fields.SamplingFields, ABC):
    """What completions and chat completions have in common."""

    numbers_per_token: ClassVar[int] = 0
    texts_per_token: ClassVar[int] = 0
    """The most values that a body has for each token that fits the model."""
    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    return_token_ids: bool = False

    @abstractmethod
    def prompt_ids(self, tokenizer: Tokenizer, vocab_size: int) -> list[list[int]]:
        """Return the token ids of every prompt.

        Raises ``ApiError`` for a prompt that the model cannot take.
        """

    def echoes(self, tokenizer: Tokenizer, prompts: list[list[int]]) -> list[Echo]:
        """Return what the answers to each prompt begin with; nothing if they do not echo."""
        return []

    @abstractmethod
    def default_max_tokens(self, left: int) -> int:
        """Return the length of an output without ``max_tokens``; ``left`` tokens would fit."""


class CompletionBody(GenerationBody):
    """Body of ``POST /v1/completions``."""

    numbers_per_token = MAX_PROMPTS
    prompt: (
        str
        | sampling_fields.TokenIds
        | Annotated[list[str], Field(fail_fast=True)]
        | Annotated[list[sampling_fields.TokenIds], Field(fail_fast=True)]
    )

    logprobs: Annotated[int, Field(ge=0, le=sampling_fields.MAX_LOGPROBS)] | Literal[False] = False

    def prompt_ids(self, tokenizer: Tokenizer, vocab_size: int) -> list[list[int]]:
        """Return the tokens of each prompt, or the given ids."""
        prompts = _each(self.prompt)
        token_ids = [tokenizer.encode(one) if isinstance(one, str) else one for one in prompts]
        for ids in token_ids:
            _check_ids(ids, vocab_size)
        return token_ids

    def echoes(self, tokenizer: Tokenizer, prompts: list[list[int]]) -> list[Echo]:
        """Return each prompt with its text, as far as tokens have one."""
        if not self.echo:
            return []
        given = zip(_each(self.prompt), prompts, strict=True)
        alone = self.asked_tokens() == 0
        return [
            Echo(one if isinstance(one, str) else decoded(tokenizer, ids), ids, alone)
            for one, ids in given
        ]

    def logprob_count(self) -> int | None:
        """Return ``logprobs``."""
        return None if self.logprobs is False else self.logprobs

    def default_max_tokens(self, left: int) -> int:
        """Return OpenAI's short default."""
        return min(COMPLETION_DEFAULT_MAX_TOKENS, left)


class TextPart(sampling_fields.JsonObject):
    """A piece of a chat message; only text is understood."""

    type: Literal["text"]
    text: str


class ChatMessage(sampling_fields.JsonObject):
    """One turn of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)] | None = None
    tool_calls: Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None = None
    """What an assistant called; in the prompt as JSON."""
    tool_call_id: str | None = None
    name: str | None = None

    @model_validator(mode="after")
    def _check_content(self) -> "ChatMessage":
        if self.content is None and self.role != "assistant":
            raise ValueError("only an assistant's message may have no content")
        return self

    def as_dict(self) -> dict[str, Any]:
        """Return what a template gets to see: the fields that were given, the content a text."""
        content = self.content
        text = "".join(part.text for part in content) if isinstance(content, list) else content
        return self.model_dump(exclude_none=True) | {"content": text}


class ChatBody(GenerationBody):
    """Body of ``POST /v1/chat/completions``."""

    texts_per_token = 8  # {"role": "user", "content": "x"} has five
    messages: Annotated[list[ChatMessage], Field(fail_fast=True)] = Field(min_length=1)
    tools: Annotated[list[dict[str, Any]], Field(fail_fast=True)] = Field([])
    """In the prompt as the template words them; calls come back as the text of the answer."""
    tool_choice: Literal["none", "auto"] = "auto"
    chat_template_kwargs: dict[str, Any] = Field({})
    """Variables of this model's template, such as ``enable_thinking``."""
    echo: Literal[False] = False
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=sampling_fields.MAX_LOGPROBS)

    def prompt_ids(self, tokenizer: Tokenizer, vocab_size: int) -> list[list[int]]:
        """Return the messages in the model's chat template, up to where the assistant answers."""
        if not tokenizer.has_template:
            self._check_plain()
        messages = [message.as_dict() for message in self.messages]
        tools = self.tools if self.tool_choice != "none" else []
        try:
            ids = tokenizer.chat_ids(Chat(messages, tools, self.chat_template_kwargs))
        except ChatError as error:
            raise wrong_field("messages", str(error)) from None
        _check_ids(ids, vocab_size, "messages")
        return [ids]

    def logprob_count(self) -> int | None:
        """Return ``top_logprobs``, which ``logprobs`` turns on."""
        if self.top_logprobs and not self.logprobs:
            raise wrong_field("top_logprobs", 'needs "logprobs": true')
        return self.top_logprobs if self.logprobs else None

    def _check_plain(self) -> None:
        """Raise ``ApiError`` for what only a model's own template understands."""
        fields = {"tools": self.tools, "chat_template_kwargs": self.chat_template_kwargs}
        for name, value in fields.items():
            if value:
                only = f"this server supports only {type(value)()!r}"
                message = f"{only}: its model has no chat template"
                raise wrong_field(name, message, "unsupported_parameter")

    def default_max_tokens(self, left: int) -> int:
        """Return all that would fit."""
        return left


BodyT = TypeVar("BodyT", bound=GenerationBody)


def parse_body(kind: type[BodyT], raw: bytes | bytearray) -> BodyT:
    """Return the validated body.

    Raises ``ApiError`` (400) that names the first field that is wrong.
    """
    fields = _fields(raw)
    fields_of_kind = kind.model_fields
    sampling_fields.check_supported(
        {n: value for n, value in fields.items() if n not in fields_of_kind}
    )
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        param = str(first["loc"][0])
        reason = "is required" if first["type"] == "missing" and len(first["loc"]) == 1 else None
        message = reason or sampling_fields.FIELDS["expected"].get(param) or first["msg"]
        raise wrong_field(param, message) from None


def _check_counts(kind: type[GenerationBody], raw: bytes | bytearray, longest_tokens: int) -> None:
    """Raise ``ApiError`` (400) for more values than a request of the model has; decode none."""
    if len(raw) <= OTHER_VALUES:
        return
    bare, strings = _STRING.subn(b"", raw)
    texts = strings + bare.count(b"[") + bare.count(b"{")
    most_texts = OTHER_VALUES + kind.texts_per_token * longest_tokens
    most_values = most_texts + kind.numbers_per_token * longest_tokens
    for count, most, what in (
        (texts, most_texts, "strings, lists and objects"),
        (bare.count(b","), most_values, "values"),
    ):
        if count > most:
            message = f"the body has {count} {what}; this model takes at most {most}"
            raise ApiError(400, message, code="too_many_values")


def _fields(raw: bytes | bytearray) -> dict[str, Any]:
    try:
        body = from_json(raw)
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(body, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    return {name: value for name, value in body.items() if value is not None}


def _each(prompt: str | list[int] | list[str] | list[list[int]]) -> list[str] | list[list[int]]:
    """Return a prompt or a list of prompts as a list of prompts."""
    if isinstance(prompt, str):
        return [prompt]
    if not prompt or isinstance(prompt[0], int):
        return [cast("list[int]", prompt)]
    return prompt


def _check_ids(ids: list[int], vocab_size: int, field: str = "prompt") -> None:
    if not ids:
        raise wrong_field(field, "is empty")
    sampling_fields.check_tokens(field, ids, vocab_size)


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What requests are checked against before they reach the core."""

    model: str
    vocab_size: int
    longest_tokens: int
    """Tokens, prompt and output, that the model and the KV memory can take."""
    tokenizer: Tokenizer = field(default_factory=ByteTokenizer)
    adapters: tuple[str, ...] = ()
    """Names that requests may give instead of ``model``."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """As many outputs for each prompt as its parameters say."""

    prompts: list[tuple[list[int], SamplingParams]]
    stream: bool
    include_usage: bool
    return_token_ids: bool
    logprobs: bool
    model: str
    """As the request names it: the model, or an adapter."""
    echoes: list[Echo]
    """What the answers to each prompt begin with; empty if they do not echo."""


def read_request(
    kind: type[GenerationBody], raw: bytes | bytearray, limits: ModelLimits
) -> GenerationRequest:
    """Return what a body asks for. Raises ``ApiError`` that names the first field that is wrong."""
    _check_counts(kind, raw, limits.longest_tokens)
    body = parse_body(kind, raw)
    model = limits.model if body.model is None else body.model
    served = (limits.model, *limits.adapters)
    if model not in served:
        raise unknown_model(model, served)
    adapter = model if model != limits.model else None
    prompts = body.prompt_ids(limits.tokenizer, limits.vocab_size)
    if len(prompts) > MAX_PROMPTS:
        message = f"{len(prompts)} prompts in one request; at most {MAX_PROMPTS} are taken"
        raise wrong_field("prompt", message)
    if len(prompts) * body.n > MAX_CHOICES:
        message = f"{len(prompts)} prompts with {body.n} answers each are more than {MAX_CHOICES}"
        raise wrong_field("n", message)
    return GenerationRequest(
        [(ids, _params(body, len(ids), limits, adapter)) for ids in prompts],
        body.stream,
        body.stream_options.include_usage,
        body.return_token_ids,
        body.logprob_count() is not None,
        model,
        body.echoes(limits.tokenizer, prompts),
    )


def _params(
    body: GenerationBody, prompt_tokens: int, limits: ModelLimits, adapter: str | None
) -> SamplingParams:
    """Return the parameters of one output; the scheduler decides whether it fits in the end."""
    left = limits.longest_tokens - prompt_tokens
    if left < 0:
        most = limits.longest_tokens
        message = f"{prompt_tokens} prompt tokens are more than the {most} that fit"
        raise ApiError(400, message, code="context_length_exceeded")
    longest = max(1, body.default_max_tokens(left))
    params = body.sampling(longest, limits.vocab_size, limits.tokenizer.eos_ids)
    return replace(params, adapter=adapter) if adapter else params
