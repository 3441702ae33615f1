"""What unequal contexts cost: decodes of one batch wait for the longest."""

from dataclasses import dataclass

import numpy as np

from servetwin.sim.step_times.step_time import FloatArray

_LEAST_GAP = 0.02
"""Batches whose longest context costs no more than this above the mean say nothing of skew."""


@dataclass(frozen=True, slots=True)
class ContextSkew:
    """Where attention over unequal contexts lies between two equal ones.

    A batch takes (1 - a) times as long as at its mean context, plus a times as long as at its
    longest; ``shares`` are a by ``decodes``.
    """

    decodes: FloatArray
    shares: FloatArray

    def share(self, decodes: int) -> float:
        """Return a for a number of decodes; nothing for a single one."""
        return float(np.interp(decodes, self.decodes, self.shares)) if decodes > 1 else 0.0


def fit_skew(
    decodes: FloatArray, at_mean_s: FloatArray, at_longest_s: FloatArray, skewed_s: FloatArray
) -> ContextSkew | None:
    """Return the skew of measured batches, or None where no batch says anything.

    The arguments have a value per batch: its decodes, its time, and those of equal contexts, once
    all at its mean and once all at its longest. A share is the ratio of the sums over all batches
    of as many decodes, so it preserves their total time.
    """
    telling = at_longest_s > (1 + _LEAST_GAP) * at_mean_s
    if not telling.any():
        return None
    counts, which = np.unique(decodes[telling], return_inverse=True)
    gaps_s = np.bincount(which, (at_longest_s - at_mean_s)[telling])
    excesses_s = np.bincount(which, (skewed_s - at_mean_s)[telling])
    return ContextSkew(counts, np.clip(excesses_s / gaps_s, 0.0, 1.0))
