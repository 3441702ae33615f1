"""How durations are shown: in milliseconds, and from ten seconds on in seconds.

A row or an axis has one unit: that of its longest duration.
"""

from collections.abc import Iterable

SECONDS_FROM_S = 10.0


def duration_unit(durations_s: Iterable[float | None]) -> tuple[str, float]:
    """Return the unit of durations that stand together, and the factor from seconds to it.

    Undefined ones (None, NaN) do not count.
    """
    longest_s = max((abs(s) for s in durations_s if s is not None and s == s), default=0.0)
    return ("s", 1.0) if longest_s >= SECONDS_FROM_S else ("ms", 1000.0)


def duration(seconds: float | None) -> str:
    """Return ``512.3 ms`` or ``305.3 s``, in four digits; ``-`` for an undefined one."""
    if seconds is None or seconds != seconds:
        return "-"
    unit, factor = duration_unit([seconds])
    value = factor * seconds
    return f"{value:.4g} {unit}" if abs(value) < 10_000 else f"{value:.0f} {unit}"
