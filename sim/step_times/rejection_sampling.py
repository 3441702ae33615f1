"""Rejection sampling of drafts: tokens are accepted or replaced so that they follow the target.

Leviathan et al. (ICML 2023), section 2.3; Chen et al. (2023), theorem 1.
"""

import numpy as np
import numpy.typing as npt

from servetwin.sim.step_times.step_time import FloatArray
from servetwin.workloads.errors import PolicyError

_TOLERANCE = 1e-9


def acceptance_rate(target: npt.ArrayLike, draft: npt.ArrayLike) -> float:
    """Return the probability that a token of ``draft`` is accepted: the sum of min(target, draft).

    Raises ``PolicyError`` unless both are distributions over the same tokens.
    """
    return float(np.minimum(*_distributions(target, draft)).sum())


def accept_or_replace(
    target: npt.ArrayLike, draft: npt.ArrayLike, count: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draft and verify ``count`` tokens; they follow ``target``, whatever ``draft`` is.

    A drafted x is accepted with probability min(1, target(x) / draft(x)), else replaced by a draw
    from max(0, target - draft), scaled to 1. Raises ``PolicyError`` unless both are distributions
    over the same tokens.
    """
    wanted, drafted = _distributions(target, draft)
    tokens = rng.choice(len(drafted), count, p=drafted)
    rejected = rng.random(count) * drafted[tokens] >= wanted[tokens]
    if rejected.any():
        missing = np.maximum(0.0, wanted - drafted)
        replaced = rng.choice(len(missing), int(rejected.sum()), p=missing / missing.sum())
        tokens[rejected] = replaced
    return tokens


def _distributions(target: npt.ArrayLike, draft: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    first, second = _distribution("target", target), _distribution("draft", draft)
    if len(first) != len(second):
        raise PolicyError(
            f"draft: a distribution over {len(second)} tokens cannot replace one over {len(first)}"
        )
    return first, second


def _distribution(name: str, values: npt.ArrayLike) -> FloatArray:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not (found >= 0).all() or abs(found.sum() - 1) > _TOLERANCE:
        raise PolicyError(
            f"{name}: {found.tolist()} is no distribution; probabilities must sum to 1"
        )
    return found
