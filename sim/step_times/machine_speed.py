"""How fast a machine was at each moment, by the reference beats in a step log.

The cores of a shared machine lose and gain tenths of their speed within seconds. Times that are
divided by the mean beat around them have lost that: they are those of one constant machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from servetwin.policies.step_record import StepRecord
from servetwin.sim.step_times.protocol import FloatArray

BoolArray = npt.NDArray[np.bool_]
# Beats from this long before to this long after a moment tell the speed at it.
WINDOW_S = 1.0
# Below this number in the window the speed is not known.
FEWEST_BEATS = 4
# Nor is it around a beat that takes so many times the median: it stalled.
STALLED = 10.0
# How far steps follow the beat: a beat of +1 % means +1.2 % of a decode, +0.7 % with chunks. Pooled
# over 16 trials of two models on shared cores, with standard errors of 0.03 and 0.02: a decode
# touches more memory for its arithmetic than the beat, a prompt less.
_DECODES_FOLLOW, _CHUNKS_FOLLOW = 1.2, 0.7


def slowdown(beats: FloatArray, has_chunks: BoolArray) -> FloatArray:
    """Return how much longer steps take where the beat is ``beats`` times as long."""
    return np.power(beats, np.where(has_chunks, _CHUNKS_FOLLOW, _DECODES_FOLLOW))


@dataclass(frozen=True, slots=True)
class MachineSpeed:
    """The moments of beats on the clock of the log, and how long each took (s)."""

    moments_s: FloatArray
    beats_s: FloatArray

    @classmethod
    def of(cls, steps: Sequence[StepRecord]) -> "MachineSpeed":
        """Read the beats of a step log.

        A beat ran when the step before it had ended, even if the server slept after it.
        """
        beats = [
            (before.now_s + before.duration_s, after.beat_s)
            for before, after in pairwise(steps)
            if after.beat_s > 0
        ]
        moments_s, beats_s = np.array(beats, dtype=np.float64).reshape(-1, 2).T
        return cls(moments_s, beats_s)

    def beats_around(self, moments_s: FloatArray) -> FloatArray:
        """Return the mean beat (s) around each moment; NaN where there are too few, or one stalled.

        The mean, since what takes a core away lengthens steps and beats by the same share.
        """
        if not len(self.beats_s):
            return np.full(len(moments_s), np.nan)
        first = np.searchsorted(self.moments_s, moments_s - WINDOW_S)
        last = np.searchsorted(self.moments_s, moments_s + WINDOW_S, side="right")
        beats_s = np.where(self.beats_s > STALLED * np.median(self.beats_s), np.nan, self.beats_s)
        sums, counts = np.append(0.0, np.nancumsum(beats_s)), last - first
        stalls = np.append(0, np.cumsum(np.isnan(beats_s)))
        means = (sums[last] - sums[first]) / np.maximum(counts, 1)
        is_known = (counts >= FEWEST_BEATS) & (stalls[last] == stalls[first])
        return np.asarray(np.where(is_known, means, np.nan))
