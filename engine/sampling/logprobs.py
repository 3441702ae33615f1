"""A new token, and logarithms of probabilities at its place. Free of torch."""

from typing import NamedTuple


class TokenLogprobs(NamedTuple):
    """Logarithms of probabilities at the place of one token.

    They are of the logits as the model gave them (vLLM's ``raw_logprobs``).
    """

    chosen: float
    """Of the token itself."""
    top: tuple[tuple[int, float], ...] = ()
    """(token, logprob) of the likeliest ones, the likeliest first."""


class NewToken(NamedTuple):
    """A token that was sampled, or drafted and accepted."""

    token_id: int
    drafted: int = 0
    """Tokens drafted for the pass that this token begins."""
    logprobs: TokenLogprobs | None = None
    """Where the request wants them."""
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    """Of the tokens of the prompt, with the first token where the request wants them."""
