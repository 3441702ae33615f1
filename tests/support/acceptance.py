"""What comes out of the passes of an endless answer."""

from servetwin.sim.step_times.acceptance import Acceptance, Diffusion, OrderedAcceptance


def mean_tokens_per_pass(law: Acceptance) -> float:
    """1 + E[accepted], or ``block_tokens`` / ``refinements``."""
    if isinstance(law, Diffusion):
        return law.block_tokens / law.refinements
    assert isinstance(law, OrderedAcceptance)
    return 1.0 + sum(law.reach)
