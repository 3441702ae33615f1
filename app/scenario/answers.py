"""How many servers, users or requests per second: an answer per candidate, and the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Literal

from servetwin.app.scenario.prices import Prices
from servetwin.sim.experiments.capacity import Capacity, SLOTarget
from servetwin.sim.experiments.fleet import times
from servetwin.sim.experiments.how_many import HowMany
from servetwin.sim.experiments.scenario import Scenario, devices

# What is searched. The first two are the same search in other units.
What = Literal["replicas", "devices", "users", "lanes", "rate"]
# Fewer of these are better.
FEWEST: tuple[What, ...] = ("replicas", "devices")
# These wait for their answers.
WAITING: tuple[What, ...] = ("users", "lanes")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A count (or rate) that was simulated: the factor on all limits that just meets the target.

    ``interval`` is that of the factor; ``holding`` of ``draws`` replications hold.
    """

    count: float
    factor: float
    holds: bool
    interval: tuple[float, float] | None = None
    holding: int | None = None
    draws: int = 0
    load: float | None = None
    requests: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The result for a candidate; ``problem`` says why there is none.

    ``count`` is None where no number holds, 0 where not even one user or the lowest rate does. An
    end of ``interval`` is None where it lies beyond what was tried. ``devices`` are those of all
    servers at ``count``.
    """

    label: str
    what: What
    count: float | None = None
    interval: tuple[float | None, float | None] | None = None
    points: tuple[CurvePoint, ...] = ()
    beyond: CurvePoint | None = None
    """The nearest count that misses the target."""
    devices: Mapping[str, int] = field(default_factory=dict)
    cost_per_h: float | None = None
    draws: int = 0
    problem: str = ""
    capacity: Capacity | None = None
    """Of a rate: what was found beside it."""

    @property
    def at(self) -> CurvePoint | None:
        """The point of the answer."""
        return next((point for point in self.points if point.count == self.count), None)


def of_counts(label: str, what: What, scenario: Scenario, found: HowMany, prices: Prices) -> Answer:
    """Return the answer of a search over replicas or users."""
    counts_servers = what in FEWEST
    each = sum(devices(times(scenario, 1)).values()) if what == "devices" else 1
    count, ends = found.count, found.interval()
    servers = times(scenario, count) if counts_servers and count else scenario
    bought = devices(servers)
    points = tuple(
        CurvePoint(
            each * one.count, one.factor, one.holds, found.factors(one.count),
            found.holding(one.count), len(found.draws), one.load, one.requests,
        )
        for one in found.first.tried
    )  # fmt: skip
    missed = found.first.missed
    beyond = next((p for p in points if missed and p.count == each * missed.count), None)
    return Answer(
        label, what, None if count is None else each * count,
        ends and (_times(ends[0], each), _times(ends[1], each)), points, beyond, bought,
        prices.per_hour(bought) if count else None, len(found.draws),
    )  # fmt: skip


def of_capacity(
    label: str, scenario: Scenario, found: Capacity, target: SLOTarget, prices: Prices
) -> Answer:
    """Return the answer of a search for the highest rate."""
    points = tuple(
        CurvePoint(one.rate_per_s, exp(one.excess), one.shares["all"] >= target.attainment)
        for one in found.tried
    )
    rate, missed, bought = found.rate_per_s, found.missed, devices(scenario)
    beyond = next((p for p in points if missed and p.count == missed.rate_per_s), None)
    ends = (rate.low, rate.high) if found.replications > 1 else None
    return Answer(
        label, "rate", rate.value, ends, points, beyond, bought, prices.per_hour(bought),
        found.replications, capacity=found,
    )  # fmt: skip


def best(answers: Sequence[Answer]) -> Answer | None:
    """Return the cheapest answer that holds, or, where a price is missing, that of the fewest
    devices; of users or requests, that of the most. None where no candidate holds.

    Ties go by the label: the order of the candidates decides nothing.
    """
    possible = [answer for answer in answers if answer.count]
    if not possible:
        return None
    if possible[0].what not in FEWEST:
        return min(possible, key=lambda one: (-(one.count or 0), one.label))
    has_costs = all(one.cost_per_h is not None for one in possible)

    def rank(one: Answer) -> tuple[float, float, str]:
        total = float(sum(one.devices.values()))
        return (one.cost_per_h or 0.0) if has_costs else total, total, one.label

    return min(possible, key=rank)


def _times(count: int | None, each: int) -> float | None:
    return None if count is None else each * count
