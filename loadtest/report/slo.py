"""Reads the limits of an SLO: ``ttft=500ms,tpot=50ms,e2e=2s``."""

import re
from math import inf

from servetwin.sim.records.metrics import SLO
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.key_values import key_value

_LIMITS = {"ttft": "ttft_s", "tpot": "tpot_s", "e2e": "e2e_s"}
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_EXAMPLE = "write for example ttft=500ms,tpot=50ms,e2e=2s"


def parse_slo(text: str) -> SLO:
    """Read the limits in ``text``: each at most once, each with its unit (us, ms, s).

    Raises ``LoadTestError`` naming the part that cannot be read.
    """
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, duration = key_value(part, "--slo", LoadTestError, f"LIMIT=TIME; {_EXAMPLE}")
        if name not in _LIMITS:
            raise LoadTestError(f"--slo {part.strip()!r}: unknown limit {name!r}; {_EXAMPLE}")
        if _LIMITS[name] in limits:
            raise LoadTestError(f"--slo {part.strip()!r}: {name} is given twice; {_EXAMPLE}")
        limits[_LIMITS[name]] = _seconds(part.strip(), duration)
    return SLO(**limits)


def _seconds(part: str, duration: str) -> float:
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(us|ms|s)", duration)
    if not match or not 0 < float(match[1]) < inf:
        raise LoadTestError(f"--slo {part!r}: not a positive time with its unit; {_EXAMPLE}")
    return float(match[1]) * _UNITS_S[match[2]]
