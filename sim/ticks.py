"""Simulated time in whole ticks of 2^-64 s: sums are exact, so ties are ties.

A run of k steps in closed form ends on the very tick on which k single steps end, whatever the
order of the additions. People, files and policies see seconds.
"""

from math import ldexp

TICK_BITS = 64
SECONDS_PER_TICK = ldexp(1.0, -TICK_BITS)
_TICKS_PER_S = ldexp(1.0, TICK_BITS)


def to_ticks(seconds: float) -> int:
    """Return the last tick at or before ``seconds`` (>= 0)."""
    return int(seconds * _TICKS_PER_S)
