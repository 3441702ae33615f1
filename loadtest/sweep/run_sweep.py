"""Runs a sweep: level after level, each that does not count again, until one of its ends."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from servetwin.loadtest.options import duration_s
from servetwin.loadtest.sweep.level import Level, LevelPlan
from servetwin.loadtest.sweep.sweep import Sweep
from servetwin.sim.records.metrics import SLO
from servetwin.workloads.errors import EndedEarly, LoadTestError

# How often a level is sent until its client keeps up.
MOST_ATTEMPTS = 5
INTERRUPTED = "interrupted"

# Sends the load of a plan, in its nth attempt, and returns what was measured, by these limits.
# Raises ``EndedEarly`` where the load test was interrupted, or stopped since its server is gone.
Measure = Callable[[LevelPlan, int, SLO | None], Level]


_EXAMPLE = "write for example 24 (load tests), 900s or 15min"


@dataclass(frozen=True, slots=True)
class SweepBudget:
    """The most load tests that a sweep sends, repeated ones included, and the most time."""

    load_tests: float = inf
    time_s: float = inf

    def __str__(self) -> str:
        return f"{self.time_s:g} s" if self.load_tests == inf else f"{self.load_tests:g} load tests"

    def spent(self, load_tests: int, elapsed_s: float, next_s: float) -> str | None:
        """Return why no other load test is sent; None where one fits.

        ``next_s`` is how long its sending would take.
        """
        if load_tests >= self.load_tests:
            return f"the budget of {self} is spent"
        if elapsed_s + next_s > self.time_s:
            return f"the next level would end later than the budget of {self}"
        return None


def parse_budget(text: str) -> SweepBudget:
    """Read a number of load tests, or a time with its unit.

    Raises ``LoadTestError`` where it is neither.
    """
    if re.fullmatch(r"[1-9]\d{0,5}", text):
        return SweepBudget(load_tests=int(text))
    time_s = duration_s(text, "s", "min", "h")
    if time_s is None:
        raise LoadTestError(f"--sweep-budget {text!r}: no number and no time; {_EXAMPLE}")
    return SweepBudget(time_s=time_s)


def run_sweep(
    sweep: Sweep,
    budget: SweepBudget,
    measure: Measure,
    on_level: Callable[[Sweep], None],
    clock: Callable[[], float] = time.monotonic,
) -> Sweep:
    """Measure the levels that ``sweep`` wants, hand it on after each, and return it ended.

    A level in which the client was late does not count and is repeated; where it never keeps up,
    the sweep ends. A level that is cut short is lost, the finished ones are not.
    """
    began_s, sent = clock(), 0
    try:
        while not isinstance(plan := sweep.next_level(), str):
            for attempt in range(1, MOST_ATTEMPTS + 1):
                if spent := budget.spent(sent, clock() - began_s, _sending_s(plan, sweep)):
                    return replace(sweep, ended=spent)
                level = measure(plan, attempt, sweep.limits)
                sent += 1
                if level.counts:
                    break
            sweep = replace(sweep, levels=(*sweep.levels, level))
            on_level(sweep)
            if not level.counts:
                late = f"{plan.load} does not count in {level.attempts} attempts"
                raise EndedEarly(f"the client is the limit: {late} ({level.limited_by[0]})")
    except (EndedEarly, KeyboardInterrupt) as error:
        return replace(sweep, ended=str(error) or INTERRUPTED, early=True)
    return replace(sweep, ended=plan)


def _sending_s(plan: LevelPlan, sweep: Sweep) -> float:
    """Return how long sending a level takes; 0 where its rate is up to the server."""
    requests = plan.requests or sweep.settings.requests
    return requests / plan.rate_per_s if plan.rate_per_s else 0.0
