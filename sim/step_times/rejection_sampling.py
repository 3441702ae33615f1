"""Why drafts change no answer: a drafted token is accepted or replaced so that the law stays.

Leviathan et al. (ICML 2023), section 2.3; Chen et al. (2023), theorem 1.
"""

import numpy as np
import numpy.typing as npt

from sim.step_times.step_time import FloatArray
from workloads.errors import PolicyError

_TOLERANCE = 1e-9


def acceptance_rate(target: npt.ArrayLike, draft: npt.ArrayLike) -> float:
    """Probability that a token of ``draft`` is accepted: the sum over min(target, draft).

    Both are laws over the same tokens. Raises ``PolicyError`` where they are not.
    """
    return float(np.minimum(*_laws(target, draft)).sum())


def accept_or_replace(
    target: npt.ArrayLike, draft: npt.ArrayLike, count: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """``count`` tokens that are drafted and verified; they follow ``target``, whatever ``draft``.

    A drafted x is accepted with probability min(1, target(x) / draft(x)), else replaced by one of
    the law of max(0, target - draft), scaled to 1. Raises ``PolicyError`` unless both are laws over
    the same tokens.
    """
    wanted, drafted_law = _laws(target, draft)
    tokens = rng.choice(len(drafted_law), count, p=drafted_law)
    rejected = rng.random(count) * drafted_law[tokens] >= wanted[tokens]
    if rejected.any():
        missing = np.maximum(0.0, wanted - drafted_law)
        replaced = rng.choice(len(missing), int(rejected.sum()), p=missing / missing.sum())
        tokens[rejected] = replaced
    return tokens


def _laws(target: npt.ArrayLike, draft: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    first, second = _law("target", target), _law("draft", draft)
    if len(first) != len(second):
        raise PolicyError(
            f"draft: a law over {len(second)} tokens cannot stand for one over {len(first)}"
        )
    return first, second


def _law(name: str, values: npt.ArrayLike) -> FloatArray:
    law = np.asarray(values, dtype=np.float64)
    if law.ndim != 1 or not (law >= 0).all() or abs(law.sum() - 1) > _TOLERANCE:
        raise PolicyError(f"{name}: {law.tolist()} is no law; probabilities must sum to 1")
    return law
