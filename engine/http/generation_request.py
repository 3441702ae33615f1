"""What a body asks for, checked against the model: token ids, parameters, and the answer's form."""

from dataclasses import dataclass, field, replace

from servetwin.engine.http.answers import Echo
from servetwin.engine.http.api_errors import ApiError, unknown_model
from servetwin.engine.http.protocol import GenerationBody, parse_body
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.text.byte_tokenizer import ByteTokenizer
from servetwin.engine.text.tokenizer import Tokenizer

MAX_PROMPTS = 128
"""Prompts in one request."""

MAX_CHOICES = 1024
"""Answers to one request."""


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
    body = parse_body(kind, raw)
    model = limits.model if body.model is None else body.model
    served = (limits.model, *limits.adapters)
    if model not in served:
        raise unknown_model(model, served)
    adapter = model if model != limits.model else None
    prompts = body.prompt_ids(limits.tokenizer, limits.vocab_size)
    if len(prompts) > MAX_PROMPTS:
        message = f"prompt: {len(prompts)} prompts in one request; at most {MAX_PROMPTS} are taken"
        raise ApiError(400, message, param="prompt")
    if len(prompts) * body.n > MAX_CHOICES:
        message = (
            f"n: {len(prompts)} prompts with {body.n} answers each are more than {MAX_CHOICES}"
        )
        raise ApiError(400, message, param="n")
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
        message = (
            f"{prompt_tokens} prompt tokens are more than the {limits.longest_tokens} that fit"
        )
        raise ApiError(400, message, code="context_length_exceeded")
    longest = max(1, body.default_max_tokens(left))
    params = body.sampling(longest, limits.vocab_size, limits.tokenizer.eos_ids)
    return replace(params, adapter=adapter) if adapter else params
