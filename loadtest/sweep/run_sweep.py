"""Runs a sweep: level after level, each that does not count again, until one of its ends."""

import time
from collections.abc import Callable
from dataclasses import replace

from servetwin.loadtest.sweep.level import Level, LevelPlan
from servetwin.loadtest.sweep.stopping_rule import SweepBudget
from servetwin.loadtest.sweep.sweep import Sweep
from servetwin.workloads.errors import EndedEarly

MOST_ATTEMPTS = 5
"""How often a level is sent until its client keeps up."""
INTERRUPTED = "interrupted"

Measure = Callable[[LevelPlan, int], Level]
"""Sends the load of a plan, in its nth attempt, and returns what was measured.

Raises ``EndedEarly`` where the load test was interrupted, or stopped since its server is gone.
"""


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
                level = measure(plan, attempt)
                sent += 1
                if level.counts:
                    break
            sweep = replace(sweep, levels=(*sweep.levels, level))
            on_level(sweep)
            if not level.counts:
                raise EndedEarly(_client_is_the_limit(level))
    except (EndedEarly, KeyboardInterrupt) as error:
        return replace(sweep, ended=str(error) or INTERRUPTED, early=True)
    return replace(sweep, ended=plan)


def _client_is_the_limit(level: Level) -> str:
    late = f"{level.plan.load} does not count in {level.attempts} attempts"
    return f"the client is the limit: {late} ({level.limited_by[0]})"


def _sending_s(plan: LevelPlan, sweep: Sweep) -> float:
    """Return how long sending a level takes; 0 where its rate is up to the server."""
    return sweep.settings.requests / plan.rate_per_s if plan.rate_per_s else 0.0
