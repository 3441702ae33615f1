"""Closed forms of passes that yield several tokens: speed-ups, and what it takes to reach them.

Shares are of the time of a plain decode step of the target. Leviathan et al. (ICML 2023), Chen et
al. (2023); the times of ``roofline_speed_up`` are those of the simulator.
"""

from scipy.optimize import brentq

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.acceptance import Acceptance, Chain
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.workloads.errors import PolicyError
from tests.support.acceptance import mean_tokens_per_pass


def period(draft: float, verify: float, pipelined: bool) -> float:
    """Return the time of a pass: the longer of both where they overlap, else their sum."""
    return max(draft, verify) if pipelined else draft + verify


def speed_up(
    tokens_per_pass: float,
    drafts: int,
    draft_share: float,
    verify_share: float = 1.0,
    pipelined: bool = False,
) -> float:
    """Return E[tokens] / (g c + v): ``drafts`` g, each c of a step, then v to verify."""
    return tokens_per_pass / period(drafts * draft_share, verify_share, pipelined)


def needed_alpha(
    wanted: float, drafts: int, draft_share: float, verify_share: float = 1.0
) -> float:
    """Return the acceptance at which a chain of drafts is ``wanted`` times as fast as none.

    Raises ``PolicyError`` where even accepting all of them is not enough.
    """

    def surplus(alpha: float) -> float:
        tokens = mean_tokens_per_pass(Chain(alpha, drafts))
        return speed_up(tokens, drafts, draft_share, verify_share) - wanted

    if surplus(0) >= 0:
        return 0.0
    if surplus(1) < 0:
        raise PolicyError(
            f"speed-up: {wanted:g} is not possible with {drafts} drafts of {draft_share:g} of a "
            f"step each; accepting all of them makes {wanted + surplus(1):g}"
        )
    return float(brentq(surplus, 0, 1, xtol=1e-12))


def best_drafts(alpha: float, draft_share: float, most: int = 64) -> int:
    """Return the quickest number of drafts, up to ``most``, where verifying is one step."""

    def gain(drafts: int) -> float:
        return speed_up(mean_tokens_per_pass(Chain(alpha, drafts)), drafts, draft_share)

    return max(range(1, most + 1), key=gain)


def streamed_pass_s(weight_bytes: float, resident_bytes: float, bytes_per_s: float) -> float:
    """Return the seconds of a pass that streams all weights that are not resident."""
    return max(0.0, weight_bytes - resident_bytes) / bytes_per_s


def plain_step_s(deployment: Deployment, sequences: int, context_tokens: int) -> float:
    """Return the seconds of a step of plain decodes, each behind ``context_tokens`` others."""
    attended = context_tokens + 1
    shape = BatchShape(
        sequences, sequences * attended, sequences, decode_contexts=(attended,) * sequences
    )
    return float(roofline_step_time(deployment).seconds(shape)[0])


def drafted_pass_s(deployment: Deployment, rows: int, sequences: int, context_tokens: int) -> float:
    """Return the seconds of a pass of ``rows`` rows of each sequence, the drafting included."""
    chunks = ((context_tokens, rows),) * sequences
    shape = BatchShape(0, 0, 0, chunks, drafted_chunks=sequences)
    return float(roofline_step_time(deployment).seconds(shape)[0])


def roofline_speed_up(
    plain: Deployment, drafted: Deployment, law: Acceptance, sequences: int, context_tokens: int
) -> float:
    """Return E[tokens per pass] t_1(B) / t_pass(rows, B), truncation apart.

    Drafts are nearly free while B rows stay below the ridge; past it the gain goes. For diffusion
    this is N t_decode / (K t_forward(N)).
    """
    step_s = plain_step_s(plain, sequences, context_tokens)
    pass_s = drafted_pass_s(drafted, law.rows, sequences, context_tokens)
    return mean_tokens_per_pass(law) * step_s / pass_s
