"""What an executor keeps of a sequence: tokens, and how the next is chosen. Free of torch."""

from dataclasses import dataclass, field

from servetwin.engine.sampling.logprobs import TokenLogprobs
from servetwin.engine.sampling.sampling_params import SamplingParams, new_seed
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


@dataclass(slots=True)
class TokenState:
    """The tokens of one sequence, prompt and generated, and how to choose the next."""

    token_ids: list[int]
    params: SamplingParams
    seed: int = 0
    """Its own, where ``params`` has none."""
    seen: SeenTokens | None = None
    """What penalties count; None without them."""
    prompt_logprobs: dict[int, TokenLogprobs] = field(default_factory=dict)
    """By position, where they are wanted."""
    is_plain: bool = field(init=False)
    """Whether each token is the likeliest one, and nothing else is wanted of it."""

    def __post_init__(self) -> None:
        params = self.params
        wants_more = params.logprobs is not None or params.prompt_logprobs is not None
        self.is_plain = params.is_argmax and not wants_more

    def wants_prompt_logprobs(self, prompt_tokens: int) -> bool:
        """Return whether they are wanted and not told: a prompt may be computed anew later."""
        return self.params.prompt_logprobs is not None and len(self.token_ids) <= prompt_tokens

    def row(self, generated_tokens: int) -> SampledRow:
        """Return how the next token is chosen, after so many of the output."""
        return SampledRow(self.params, generated_tokens, self.seed, self.seen)


def token_state(token_ids: list[int], params: SamplingParams) -> TokenState:
    """Return the state of a new sequence, whose tokens are its prompt."""
    seed = new_seed() if params.seed is None else params.seed
    seen = SeenTokens(token_ids, len(token_ids)) if params.has_penalties else None
    return TokenState(token_ids, params, seed, seen)
