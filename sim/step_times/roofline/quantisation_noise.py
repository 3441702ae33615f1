"""How much noise rounding adds to weights, by formula: signal over noise in dB, or in bits.

The weights are normal numbers. A grid of integers has steps of S = range / (2^b - 1), where the
range is that of ``group`` weights: from the lowest to the highest (``affine``), or twice the
largest magnitude (``integer``); its noise is S^2 / 12. A float of m mantissa bits has steps in
proportion to each weight. No format of R bits a weight has more than 6.02 R dB (the rate-distortion
bound). Calibration and training make the outputs better than this noise of the weights says.
"""

from dataclasses import dataclass
from functools import cache
from math import erf, log10, pi, sqrt
from typing import Literal

import numpy as np

DB_PER_BIT = 20 * log10(2)
_MOST = 8.0
_STEPS = 800
_OCTAVES = 40


@dataclass(frozen=True, slots=True)
class Grid:
    """Numbers that weights are rounded to: ``bits`` of integers, or of the mantissa of floats."""

    kind: Literal["integer", "affine", "float"]
    bits: int
    group: int = 0


def sqnr_db(grid: Grid) -> float:
    """Return the power of the weights over that of the noise, in dB.

    The noise within a step is taken as uniform: right within 0.3 dB from 3 bits on, and within
    0.6 dB for 2.
    """
    if grid.kind == "float":
        return -10 * log10(_squared_steps() / 4**grid.bits / 12)
    square = (_range_squared if grid.kind == "affine" else _twice_peak_squared)(grid.group)
    return 10 * log10(12 * (2**grid.bits - 1) ** 2 / square)


def most_sqnr_db(bits_per_weight: float) -> float:
    """Return what no format of so many bits a weight exceeds."""
    return DB_PER_BIT * bits_per_weight


def noise_bits(grid: Grid) -> float:
    """Return the signal over the noise as bits: of what the weights say, so many are right."""
    return sqnr_db(grid) / DB_PER_BIT


@cache
def _squared_steps() -> float:
    """Return the mean square of the power of two at or below the magnitude of a normal number."""
    octaves = range(-_OCTAVES, _OCTAVES)
    return sum(4.0**e * (_within(2.0 ** (e + 1)) - _within(2.0**e)) for e in octaves)


@cache
def _twice_peak_squared(group: int) -> float:
    """Return the mean square of twice the largest magnitude of ``group`` normal numbers."""
    step = _MOST / _STEPS
    magnitudes = step * (np.arange(_STEPS) + 0.5)
    below = np.array([_within(x) for x in magnitudes]) ** group
    return 4 * float((2 * magnitudes * (1 - below)).sum() * step)


@cache
def _range_squared(group: int) -> float:
    """Return the mean square of the range of ``group`` normal numbers."""
    step = 2 * _MOST / _STEPS
    lowest = step * np.arange(_STEPS) - _MOST
    density = np.exp(-(lowest**2) / 2) / sqrt(2 * pi)
    below = np.array([(1 + erf(x / sqrt(2))) / 2 for x in lowest])
    square = 0.0
    for shift in range(_STEPS):
        highest = np.concatenate([below[shift:], np.ones(shift)])
        within = group * float((density * (highest - below) ** (group - 1)).sum()) * step
        square += 2 * shift * step * (1 - within) * step
    return square


def _within(magnitude: float) -> float:
    """Return the share of normal numbers of a smaller magnitude."""
    return erf(magnitude / sqrt(2))
