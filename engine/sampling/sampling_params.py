"""How one request wants its tokens. Free of torch, so that the HTTP process can name it."""

import math
from dataclasses import dataclass

from workloads.errors import EngineError

EOS_ID = 256
"""End of sequence of the seeded presets, the first id after the 256 bytes."""
MIN_TEMPERATURE = 1e-5
"""The lowest that is not 0: below, the division of logits says nothing that greedy does not."""


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
    """Until so many tokens are out, neither the end of sequence nor a stop string ends it."""
    temperature: float = 0.0
    """0 takes the likeliest token."""
    seed: int | None = None
    """None draws a seed from the operating system."""
    ignore_eos: bool = False
    """The end of sequence may be sampled, but ends nothing."""
    stop: tuple[str, ...] = ()
    eos_ids: tuple[int, ...] = (EOS_ID,)
    """The model's tokens that end a sequence; the HTTP process fills in the tokenizer's."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise EngineError(f"max_tokens must be at least 1 (got {self.max_tokens})")
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise EngineError(
                f"min_tokens must lie in 0 .. max_tokens = {self.max_tokens} "
                f"(got {self.min_tokens})"
            )
        if problem := temperature_problem(self.temperature):
            raise EngineError(f"temperature {problem}")
