"""The levels of a sweep that lie evenly between its two measured ends."""

import numpy as np


def rates_between(alone_per_s: float, saturation_per_s: float, count: int) -> list[float]:
    """Return ``count`` rates between two, at equal distances."""
    return [float(rate) for rate in np.linspace(alone_per_s, saturation_per_s, count + 2)[1:-1]]


def users_between(most: float, count: int) -> list[int]:
    """Return at most ``count`` numbers of users above 1 and up to ``most``, evenly apart."""
    spread = np.linspace(1, max(2.0, most), count + 1)[1:]
    return sorted({round(users) for users in spread.tolist() if round(users) > 1})
