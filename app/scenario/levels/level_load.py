"""From the load of the command line to the load of each level of a sweep."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

from servetwin.app.scenario.options.levels import GENERATED_REQUESTS, NO_SWEEP
from servetwin.app.scenario.options.load import LoadChoice
from servetwin.loadtest.sweep.level import LevelPlan
from servetwin.sim.experiments.capacity import all_at_once

if TYPE_CHECKING:
    from servetwin.workloads.trace import Trace

SYNCHRONOUS_REQUESTS = 20
"""Of one user: alone, requests take the same time again and again."""
ARRIVALS = "poisson"
LEAST_PREDICTED = 2000
"""A generated load of fewer requests says little of the knee that is predicted for it."""


@dataclass(frozen=True, slots=True)
class LevelLoad:
    """The load of every level: the same trace at other rates, or requests drawn anew.

    ``choice`` is the load of the command line with its sweep.
    """

    choice: LoadChoice

    @property
    def requests(self) -> int | None:
        """The number of requests of a level; None for all of a trace."""
        generated = GENERATED_REQUESTS if self.choice.path is None else None
        return self.choice.sweep.requests or generated

    def of(self, plan: LevelPlan) -> LoadChoice:
        """Return the load of a level, as if it stood on the command line."""
        changes = {"sweep": NO_SWEEP, "limit": self.requests, "seed": self._seed(plan)}
        return replace(self.choice, **(changes | self._changes(plan)))

    def trace(self, plan: LevelPlan) -> "Trace":
        """Read or generate the requests of a level."""
        found = self.of(plan).trace()
        return all_at_once(found) if plan.kind == "throughput" else found

    def predicted_trace(self) -> "Trace":
        """Return the requests for which the simulator searches its own knee."""
        count, rate_per_s = self.requests, None
        if self.choice.path is None:
            count, rate_per_s = max(LEAST_PREDICTED, count or 0), 1.0
        return replace(
            self.choice, sweep=NO_SWEEP, arrivals=self._arrivals, rate_per_s=rate_per_s, limit=count
        ).trace()

    def _changes(self, plan: LevelPlan) -> dict[str, Any]:
        """Return what differs from the load of the command line at this level."""
        if plan.kind == "rate":
            return {"rate_per_s": plan.rate_per_s, "arrivals": self._arrivals}
        closed = {"concurrency": plan.users, "closed_loop": None, "arrivals": None}
        if plan.kind == "users":
            return closed
        end: dict[str, Any] = {"warm_up_s": 0.0, "ramp_up_s": 0.0, "think_time": None}
        if plan.kind == "throughput":
            rate_per_s = None if self.choice.path else 1.0
            return {**end, "rate_per_s": rate_per_s, "arrivals": self._arrivals}
        few = min(SYNCHRONOUS_REQUESTS, self.requests or SYNCHRONOUS_REQUESTS)
        return {**end, **closed, "limit": few, "loop": 1}

    @property
    def _arrivals(self) -> str | None:
        return None if self.choice.path else self.choice.arrivals or ARRIVALS

    def _seed(self, plan: LevelPlan) -> int:
        """Return a seed of the level: generated levels are independent of each other."""
        if self.choice.path is not None:
            return self.choice.seed
        return crc32(f"{self.choice.seed}/{plan.number}".encode())
