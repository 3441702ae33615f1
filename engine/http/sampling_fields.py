"""The fields of a body that say how tokens are chosen, and when an output ends."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from servetwin.engine.http.api_errors import wrong_field
from servetwin.engine.sampling.sampling_params import SamplingParams, temperature_problem
from servetwin.workloads.program.package import shipped_json

# ``expected``: what is right, by field, where the validator's own words say less. ``neutral``: the
# values of an unsupported field that change nothing; the first one is proposed. ``never``: fields
# without such a value, but null.
FIELDS: dict[str, Any] = shipped_json("engine/http/fields.json")


_UNSUPPORTED = "unsupported_parameter"


def check_supported(fields: Mapping[str, Any]) -> None:
    """Raise ``ApiError`` (400) that names the first field that would have to change the answer."""
    for name, value in fields.items():
        if name in FIELDS["never"]:
            raise wrong_field(name, "is not supported by this server", _UNSUPPORTED)
        neutral = FIELDS["neutral"].get(name)
        if neutral is not None and value not in neutral:
            only = f"this server supports only {neutral[0]!r}"
            raise wrong_field(name, only, _UNSUPPORTED)


StopString = Annotated[str, Field(min_length=1)]
TokenIds = Annotated[list[int], Field(fail_fast=True)]

# Tokens in ``logit_bias``, ``allowed_token_ids`` or ``stop_token_ids``.
MAX_BIASES = 1024

# Of a token id.
MOST_DIGITS = 9

# Likeliest tokens that have logprobs (vLLM's default, OpenAI's limit for chats).
MAX_LOGPROBS = 20

# Answers to one prompt (OpenAI's limit).
MAX_SAMPLES = 128


# Fields that are parameters of the same name and value.
_AS_GIVEN = (
    "min_tokens", "temperature", "seed", "ignore_eos", "top_p", "min_p", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "n",
)  # fmt: skip


class JsonObject(BaseModel):
    """An object of a body: no value is converted, unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")


class SamplingFields(JsonObject, ABC):
    """OpenAI's parameters, and vLLM's where OpenAI has none."""

    max_tokens: int | None = Field(None, ge=0)
    max_completion_tokens: int | None = Field(None, ge=0)
    echo: bool = False
    min_tokens: int = Field(0, ge=0)
    n: int = Field(1, ge=1, le=MAX_SAMPLES)
    best_of: int | None = None
    temperature: float = Field(0.0, ge=0, allow_inf_nan=False)
    """OpenAI's default is 1; here the default is greedy, so that runs repeat."""
    top_p: float = Field(1.0, gt=0, le=1, allow_inf_nan=False)
    top_k: int = Field(0, ge=-1)
    min_p: float = Field(0.0, ge=0, le=1, allow_inf_nan=False)
    presence_penalty: float = Field(0.0, ge=-2, le=2, allow_inf_nan=False)
    frequency_penalty: float = Field(0.0, ge=-2, le=2, allow_inf_nan=False)
    repetition_penalty: float = Field(1.0, gt=0, le=2, allow_inf_nan=False)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]] = Field(
        {}, max_length=MAX_BIASES
    )
    allowed_token_ids: TokenIds | None = Field(None, min_length=1, max_length=MAX_BIASES)
    seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 63)
    ignore_eos: bool = False
    stop: StopString | Annotated[list[StopString], Field(max_length=4)] = Field([])
    stop_token_ids: TokenIds = Field([], max_length=MAX_BIASES)

    @abstractmethod
    def logprob_count(self) -> int | None:
        """Return of how many likeliest tokens each token has the logprobs; None without any.

        Raises ``ApiError`` where fields contradict each other.
        """

    def asked_tokens(self) -> int | None:
        """Return the length that the body asks for; 0 is possible for an echo alone."""
        for name in ("max_completion_tokens", "max_tokens"):
            tokens: int | None = getattr(self, name)
            if tokens == 0 and not self.echo:
                message = "Input should be greater than or equal to 1; 0 needs echo"
                raise wrong_field(name, message)
            if tokens is not None:
                return tokens
        return None

    def sampling(
        self, default_max_tokens: int, vocab_size: int, eos_ids: tuple[int, ...]
    ) -> SamplingParams:
        """Return the sampling parameters; ``eos_ids`` end a sequence of the model.

        Raises ``ApiError`` where they contradict each other, or name what is no token.
        """
        asked_tokens = self.asked_tokens()
        max_tokens = default_max_tokens if asked_tokens is None else asked_tokens
        if self.min_tokens > max_tokens:
            message = f"{self.min_tokens} is more than max_tokens, {max_tokens}"
            raise wrong_field("min_tokens", message)
        if problem := temperature_problem(self.temperature):
            raise wrong_field("temperature", problem)
        if self.best_of not in (None, self.n):
            raise wrong_field("best_of", f"must equal n, {self.n}; every answer is returned")
        allowed = self.allowed_token_ids or []
        check_tokens("stop_token_ids", self.stop_token_ids, vocab_size)
        check_tokens("allowed_token_ids", allowed, vocab_size)
        return SamplingParams(
            **{name: getattr(self, name) for name in _AS_GIVEN},
            max_tokens=max(1, max_tokens),
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
            eos_ids=eos_ids,
            stop_token_ids=tuple(self.stop_token_ids),
            top_k=max(0, self.top_k),
            logit_bias=self._biases(vocab_size),
            allowed_token_ids=tuple(allowed),
            logprobs=self.logprob_count(),
            prompt_logprobs=self.logprob_count() if self.echo else None,
        )

    def _biases(self, vocab_size: int) -> tuple[tuple[int, float], ...]:
        biases: dict[int, float] = {}
        for name, bias in self.logit_bias.items():
            if not (name.isascii() and name.isdecimal() and len(name) <= MOST_DIGITS):
                raise wrong_field("logit_bias", f"{name[:40]!r} is not a token id")
            biases[int(name)] = bias
        check_tokens("logit_bias", biases, vocab_size)
        return tuple(biases.items())


def check_tokens(field: str, ids: list[int] | dict[int, float], vocab_size: int) -> None:
    """Raise ``ApiError`` (400) for the first of ``ids`` that is no token."""
    if not ids or (min(ids) >= 0 and max(ids) < vocab_size):
        return
    wrong = next(token for token in ids if not 0 <= token < vocab_size)
    message = f"token id {wrong} is not in the vocabulary, 0 .. {vocab_size - 1}"
    raise wrong_field(field, message)
