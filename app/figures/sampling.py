"""Samples of many points, few enough for a page; the same for the same data."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

Frames = Mapping[str, pd.DataFrame]
"""Frames by the name of a policy or run."""
FloatArray = npt.NDArray[np.float64]


def evenly(frame: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return at most ``most`` rows, evenly spaced, first and last among them."""
    if len(frame) <= most:
        return frame
    return frame.iloc[np.linspace(0, len(frame) - 1, most).round().astype(int)]


def cdf_points(values: pd.Series, most: int = 400) -> tuple[FloatArray, FloatArray]:
    """Return at most ``most`` of the defined values in order, and the share at or below each."""
    defined = np.sort(values.to_numpy(dtype=float))
    defined = defined[np.isfinite(defined)]
    shares = np.arange(1, len(defined) + 1) / max(len(defined), 1)
    if len(defined) <= most:
        return defined, shares
    places = np.linspace(0, len(defined) - 1, most).round().astype(int)
    return defined[places], shares[places]


def bucket_edges(start_s: float, end_s: float, most: int = 100) -> FloatArray:
    """Return edges of equal buckets over a span, at least a millisecond long in all."""
    return np.linspace(start_s, max(end_s, start_s + 1e-3), most + 1)


def as_float32(values: object) -> npt.NDArray[np.float32]:
    """Return half the bytes: seven digits are more than a screen shows."""
    return np.asarray(values, dtype=np.float32)
