"""A day: the cheapest fleet that holds an SLO over all of a trace, though a replica fails.

The trace is the day. When it is busiest a replica crashes, and is back after its start-up, of a
second at least. Of the servers that a steady plan has for a kind of GPU, the smallest fleet that
stays as it is comes first; then rules that hold the requests in hand near a target, with as many
replicas at most. The larger the target, the fewer replica-hours: the cheapest of those about the
largest that holds. All tries have the same requests and the same noise (common random numbers).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from servetwin.app.words import target_words
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.core.autoscaling import Autoscaling, parse_rule
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.sim.experiments.fewest_devices import Planned, PlanQuestion
from servetwin.sim.experiments.fleet import least_replica_hours
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.experiments.search import bisect_rate, turning_point
from servetwin.sim.records.metrics import margins
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.protocol import FloatArray
from servetwin.sim.step_times.roofline.server import RooflineServer
from servetwin.workloads.errors import PolicyError, TraceError
from servetwin.workloads.program.key_values import key_values
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import scale_rate

# Shares of ``max_seqs`` at which the search for the largest target climbs, its precision, and
# factors beyond it: what is attained jumps from target to target.
_TARGETS, _PRECISION, _BEYOND = (0.03, 0.1, 0.3, 1.0), 0.1, (1.0, 1.06, 1.12, 1.18, 1.25, 1.35)
# Loads at which the winner is tried, until it no longer holds.
_LOADS = (1.1, 1.2, 1.4, 1.7, 2.0, 3.0)
_PARTS = 96


@dataclass(frozen=True, slots=True)
class DayFleet:
    """A fleet over the day: ``cluster`` has its replicas from the start, its rule and the crash.

    ``attainment`` is the share of requests that hold the SLO. ``replica_hours`` are paid for, from
    start to end; ``sizes`` are [seconds, replicas that serve] at each change. ``course`` has
    columns over 96 parts of the day: ``at_s``, ``arrivals_per_s``, ``replicas`` that serve on
    average, ``replica_hours`` that they have served until then, and the ``factor`` on all limits
    with which the requests that arrive just meet the target.
    """

    cluster: ClusterConfig
    attainment: float
    holds: bool
    replica_hours: float
    sizes: Sequence[Sequence[float]]
    course: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class PlannedDay:
    """The cheapest ``fleet`` over the day, beside the smallest ``static`` one.

    Its ``cost`` is that of its replica-hours at their ``price``; None where that is unknown.
    ``attainments`` are those of the fleet by the load, in that of the day, until it no longer
    holds. ``settings`` are those of every rule that was tried.
    """

    fleet: DayFleet
    static: DayFleet
    price: float | None
    cost: float | None
    attainments: Mapping[float, float]
    least_replica_hours: float | None
    settings: str


def require_day(trace: Trace, given: str) -> None:
    """Raise ``ServetwinError`` for settings of no rule, and for a trace without times of day."""
    for key in key_values(given, "--day").keys() & {"target", "min", "max"}:
        raise PolicyError(f"--day: {key} is what the plan finds; leave it out")
    rule, span_s = _rule(given), trace.span_s
    if trace.lanes or not trace.timed:
        right = "leave out --lanes, which wait" if trace.lanes else "give a rate, --rate R"
        raise TraceError(f"{trace.source}: a day needs arrival times; {right}")
    if span_s < rule.interval_s:
        raise TraceError(
            f"{trace.source}: all requests come within {span_s:g} s, and a rule looks every "
            f"{rule.interval_s:g} s; take a longer trace, or --day interval_s=N"
        )


def _rule(settings: str) -> Autoscaling:
    return parse_rule(f"utilisation:max=1,{settings}", "--day")


def plan_day(
    question: PlanQuestion, planned: Planned, model: ModelShape, given: str, price: float | None
) -> PlannedDay:
    """Return the cheapest fleet of the servers of a steady plan.

    ``given`` are settings of the rules, ``price`` is that of a replica-hour. A replica that starts
    reads its weights, of 16 bits where that is not known. Raises ``PolicyError`` where no fleet
    holds the target.
    """
    scenario = planned.candidate.scenario
    if scenario.cluster.splits or scenario.cluster.ranks > 1:
        raise PolicyError("a day is of servers that serve whole requests, each on its own")
    weights, profile = 2.0 * model.params(), scenario.profile
    if isinstance(profile, RooflineServer):
        weights = profile.deployment.weight_bytes()
    settings = {"weights_gb": f"{weights / 1e9:.4g}", "gb_per_s": "1"} | key_values(given, "--day")
    text = ",".join(f"{key}={value}" for key, value in settings.items())
    servers = _Servers(question, scenario, text)
    static = servers.smallest(planned.at.count, question.most // planned.candidate.layout.devices)
    fleet, least_h = servers.scaled(static), least_replica_hours(question.trace, scenario)
    cost = None if price is None else price * fleet.replica_hours
    shares = servers.attainments(fleet)
    return PlannedDay(fleet, static, price, cost, shares, least_h, text)


@dataclass(frozen=True, slots=True)
class _Servers:
    """Fleets of the servers of a scenario, to be tried; ``settings`` are those of every rule."""

    question: PlanQuestion
    scenario: Scenario
    settings: str

    def smallest(self, guess: int, most: int) -> DayFleet:
        """Return the smallest fleet that holds the target as it is.

        Raises ``PolicyError`` where ``most`` replicas miss it.
        """
        tried, target = cache(self.tried), self.question.target
        least = turning_point(lambda count: tried(count).holds, 1, most, guess).above
        if least is None:
            shares = f"{100 * tried(most).attainment:.4g} % hold {target_words(target)}"
            raise PolicyError(f"of {most} replicas, while one is down, only {shares}")
        return tried(least)

    def scaled(self, static: DayFleet) -> DayFleet:
        """Return the cheaper of ``static`` and the best rule with as many replicas at most."""
        count, fleets = static.cluster.replicas, [static]

        @cache
        def under(target: float) -> DayFleet:
            rule = f"utilisation:target={target:.4g},max={count},{self.settings}"
            return self.tried(count, rule)

        if count > 1:
            target, _ = bisect_rate(lambda one: under(one).holds, _TARGETS, _PRECISION)
            tried = [under(target * factor) for factor in _BEYOND if target]
            fleets += [fleet for fleet in tried if fleet.holds]
        return min(fleets, key=lambda fleet: fleet.replica_hours)

    def attainments(self, fleet: DayFleet) -> dict[float, float]:
        """Return what a fleet attains at ever more load, until it no longer holds."""
        shares = {1.0: fleet.attainment}
        for load in _LOADS:
            busier = self.tried(fleet.cluster.replicas, fleet.cluster.autoscaling, load)
            shares[load] = busier.attainment
            if not busier.holds:
                break
        return shares

    def tried(self, replicas: int, rule: str = "", load: float = 1.0) -> DayFleet:
        """Simulate a fleet at a load; the first replica that runs when it is busiest crashes."""
        question, back_s = self.question, max(1.0, _rule(self.settings).start_up_s)
        trace = question.trace if load == 1 else scale_rate(question.trace, load)
        counts, edges_s = np.histogram(trace.column("arrival_s"), _PARTS)
        crash = f"at_s={edges_s[counts.argmax()]:.6g},for_s={back_s:.4g}"
        fleet = replace(self.scenario.cluster, replicas=replicas, autoscaling=rule)
        for place in range(replicas):
            cluster = replace(fleet, faults=f"crash:replica={place},{crash}")
            scenario = replace(self.scenario, cluster=cluster)
            run = run_once(trace, scenario, seed=question.seed)
            if run.extra["fleet"]["crashes"]:
                break
        share, figures = question.target.shares(run)["all"], run.extra["fleet"]
        return DayFleet(
            cluster, share, share >= question.target.attainment, figures["replica_hours"],
            figures["sizes"], _course(run, question.target, edges_s),
        )  # fmt: skip


def _course(run: Run, target: SLOTarget, edges_s: FloatArray) -> dict[str, list[float]]:
    """Return the columns of ``DayFleet.course`` between these edges."""
    rows, sizes = run.table("requests"), run.extra["fleet"]["sizes"]
    places = np.searchsorted(edges_s, rows["scheduled_s"], "right").clip(1, _PARTS) - 1
    parts = [margins(rows, target.slo)[places == place] for place in range(_PARTS)]
    at_s, counts = np.array([*sizes, [max(edges_s[-1], sizes[-1][0]), 0]]).T
    served_s = np.interp(edges_s, at_s, np.cumsum([0, *(counts[:-1] * np.diff(at_s))]))
    return {
        "at_s": edges_s[:-1].tolist(),
        "arrivals_per_s": [len(part) / (edges_s[1] - edges_s[0]) for part in parts],
        "replicas": (np.diff(served_s) / np.diff(edges_s)).tolist(),
        "replica_hours": (served_s[1:] / 3600).tolist(),
        "factor": [target.reached_by(part) if len(part) else 0.0 for part in parts],
    }
