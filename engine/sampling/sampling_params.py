"""How one request wants its tokens. Free of torch, so that the HTTP process can name it."""

import math
import secrets
from dataclasses import dataclass, replace

from servetwin.workloads.errors import EngineError

# End of sequence of the seeded presets, the first id after the 256 bytes.
EOS_ID = 256
# All bits of a seed.
WORD = (1 << 64) - 1
# The lowest that is not 0: below, the division of logits says nothing that greedy does not.
MIN_TEMPERATURE = 1e-5


def temperature_problem(temperature: float) -> str | None:
    """Return what is wrong with a temperature; None where it is possible."""
    if math.isfinite(temperature) and (temperature == 0 or temperature >= MIN_TEMPERATURE):
        return None
    return f"must be 0 (greedy) or at least {MIN_TEMPERATURE:g} (got {temperature:g})"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The length, the randomness and the stopping rules of one output.

    Raises ``EngineError`` for values that no request can mean.
    """

    max_tokens: int
    min_tokens: int = 0
    """Before this length, neither stop strings nor end tokens end the output."""
    temperature: float = 0.0
    """0 takes the likeliest token."""
    seed: int | None = None
    """None draws a seed from the operating system."""
    ignore_eos: bool = False
    """The end of sequence may be sampled, but ends nothing."""
    stop: tuple[str, ...] = ()
    eos_ids: tuple[int, ...] = (EOS_ID,)
    """The model's tokens that end a sequence; the HTTP process fills in the tokenizer's."""
    stop_token_ids: tuple[int, ...] = ()
    """Further tokens that end it, also where ``ignore_eos`` is set."""
    top_p: float = 1.0
    """Draw from the likeliest tokens that have this share of the probability together."""
    top_k: int = 0
    """Draw from the ``top_k`` likeliest tokens; 0: from all."""
    min_p: float = 0.0
    """Draw from tokens with at least this share of the likeliest one's probability."""
    presence_penalty: float = 0.0
    """Subtracted from the logit of a token that the output has."""
    frequency_penalty: float = 0.0
    """Subtracted from the logit of a token as often as the output has it."""
    repetition_penalty: float = 1.0
    """Divides a positive logit of a token that prompt or output have, and multiplies a negative."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token, what is added to its logit)."""
    allowed_token_ids: tuple[int, ...] = ()
    """No other token is sampled; empty: any may be."""
    n: int = 1
    """Answers to the prompt, each with a seed of its own."""
    adapter: str | None = None
    """The LoRA adapter that changes the model for this output."""
    logprobs: int | None = None
    """Return each token's logprob and those of the likeliest ``logprobs`` tokens; None: neither."""
    prompt_logprobs: int | None = None
    """The same for the tokens of the prompt, which is then computed whole, without cached parts."""

    def __post_init__(self) -> None:
        _check("max_tokens", self.max_tokens >= 1, "be at least 1", self.max_tokens)
        _check("n", self.n >= 1, "be at least 1", self.n)
        most = self.max_tokens
        least = self.min_tokens
        _check("min_tokens", 0 <= least <= most, f"lie in 0 .. max_tokens = {most}", least)
        if problem := temperature_problem(self.temperature):
            raise EngineError(f"temperature {problem}")
        _check("top_p", 0 < self.top_p <= 1, "be above 0 and at most 1", self.top_p)
        _check("top_k", self.top_k >= 0, "be at least 0", self.top_k)
        _check("min_p", 0 <= self.min_p <= 1, "lie in 0 .. 1", self.min_p)
        for name in ("presence_penalty", "frequency_penalty"):
            penalty: float = getattr(self, name)
            _check(name, -2 <= penalty <= 2, "lie in -2 .. 2", penalty)
        penalty = self.repetition_penalty
        _check("repetition_penalty", 0 < penalty <= 2, "be above 0 and at most 2", penalty)

    def ends_with(self, token_id: int) -> bool:
        """Return whether a token ends the sequence."""
        ends = token_id in self.eos_ids and not self.ignore_eos
        return ends or token_id in self.stop_token_ids

    def of_sample(self, sample: int) -> "SamplingParams":
        """Return the parameters of one of the ``n`` answers, with a seed of its own."""
        if self.seed is None or not sample:
            return self
        return replace(self, seed=sample_seed(self.seed, sample))

    @property
    def has_penalties(self) -> bool:
        """Whether what was seen so far changes the next token."""
        return (
            self.presence_penalty != 0
            or self.frequency_penalty != 0
            or self.repetition_penalty != 1
        )

    @property
    def is_argmax(self) -> bool:
        """Whether each token is that of the largest logit as it is."""
        return self.temperature == 0 and not (
            self.min_tokens or self.logit_bias or self.allowed_token_ids or self.has_penalties
        )


def _check(name: str, holds: bool, rule: str, value: float) -> None:
    if not holds:
        raise EngineError(f"{name} must {rule} (got {value:.12g})")


def new_seed() -> int:
    """Return a seed from the operating system."""
    return secrets.randbits(64)


def sample_seed(seed: int, sample: int) -> int:
    """Return the seed of one of several samples of a request; the first has the request's own."""
    if not sample:
        return seed
    word = (seed + sample * 0x9E3779B97F4A7C15) & WORD
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & WORD
    return word ^ word >> 31
