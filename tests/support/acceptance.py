"""What comes out of the passes of an answer, endless or not, in closed form."""

import numpy as np

from servetwin.sim.step_times.acceptance import Acceptance, Diffusion, OrderedAcceptance


def mean_tokens_per_pass(law: Acceptance) -> float:
    """1 + E[accepted], or ``block_tokens`` / ``refinements``."""
    if isinstance(law, Diffusion):
        return law.block_tokens / law.refinements
    assert isinstance(law, OrderedAcceptance)
    return 1.0 + sum(law.reach)


def distribution(law: OrderedAcceptance) -> np.ndarray:
    """The probabilities that 1, 2, ... tokens come out of a pass."""
    return -np.diff([1.0, *law.reach, 0.0])


def mean_passes(law: Acceptance, tokens: int) -> float:
    """f(tokens), with f(n) = 1 + sum over k of P(k) f(n - k), 0 for n <= 0.

    More than tokens / (1 + E[accepted]): the last pass may yield too many. Diffusion refines each
    block begun.
    """
    if isinstance(law, Diffusion):
        return float(law.refinements * -(-tokens // law.block_tokens))
    assert isinstance(law, OrderedAcceptance)
    shares = distribution(law)
    means = np.zeros(len(shares) + tokens)  # entry len(shares) - 1 is of 0 tokens
    for end in range(len(shares), len(means)):
        means[end] = 1.0 + shares @ means[end - len(shares) : end][::-1]
    return float(means[-1])
