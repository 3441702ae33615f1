"""A row of logits from which a token is chosen, as the sampler sees it."""

from dataclasses import dataclass

from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.seen_tokens import SeenTokens


@dataclass(frozen=True, slots=True)
class SampledRow:
    """The sampling state of the sequence behind one row of logits."""

    params: SamplingParams
    generated_tokens: int
    """The output's tokens before the one that is chosen, with those that are only drafted."""
    seed: int = 0
    seen: SeenTokens | None = None
    """Given where the parameters have penalties."""
    drafted: tuple[int, ...] = ()
    """Tokens after the sequence's own that are supposed to stand before this row."""
