"""When a sweep ends, apart from having found what it searched: its budget of load tests or time."""

import re
from dataclasses import dataclass
from math import inf

from servetwin.workloads.errors import LoadTestError

_UNITS_S = {"s": 1.0, "min": 60.0, "h": 3600.0}
_EXAMPLE = "write for example 24 (load tests), 900s or 15min"


@dataclass(frozen=True, slots=True)
class SweepBudget:
    """The most load tests that a sweep sends, repeated ones included, and the most time."""

    load_tests: float = inf
    time_s: float = inf

    def spent(self, load_tests: int, elapsed_s: float, next_s: float) -> str | None:
        """Return why no other load test is sent; None where one fits.

        ``next_s`` is how long its sending would take.
        """
        if load_tests >= self.load_tests:
            return f"the budget of {self.load_tests:g} load tests is spent"
        if elapsed_s + next_s > self.time_s:
            return f"the next level would end later than the budget of {self.time_s:g} s"
        return None


def parse_budget(text: str) -> SweepBudget:
    """Read a number of load tests, or a time with its unit.

    Raises ``LoadTestError`` where it is neither.
    """
    if re.fullmatch(r"[1-9]\d{0,5}", text):
        return SweepBudget(load_tests=int(text))
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(s|min|h)", text)
    if not match or not 0 < float(match[1]) < inf:
        raise LoadTestError(f"--sweep-budget {text!r}: no number and no time; {_EXAMPLE}")
    return SweepBudget(time_s=float(match[1]) * _UNITS_S[match[2]])
