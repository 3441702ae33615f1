"""From what a service does in a day to what its devices must do in a second."""

from math import ceil

SECONDS_PER_DAY = 86_400


def per_second(per_day: float) -> float:
    """A daily volume, spread evenly."""
    return per_day / SECONDS_PER_DAY


def devices_for(tokens_per_day: float, tokens_per_s: float) -> int:
    """Devices that make so many tokens a day, each ``tokens_per_s``, without a pause."""
    return ceil(per_second(tokens_per_day) / tokens_per_s)
