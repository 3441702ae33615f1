"""The fewest devices of a kind that keep an SLO: bounds, then a part of the trace, then all of it.

Every layout is searched on a part of the trace, the smallest first, and none beyond the devices of
the best so far. Two bounds spare searches: by the peaks of the data sheet a number of servers is
too small (``least_servers``), or not even requests that come alone keep the limits (``alone``).
The best layout is varied, then searched on the whole trace; last comes its capacity.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import ceil

from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.experiments import how_many
from servetwin.sim.experiments.capacity import Capacity, Replications, SLOTarget, find_capacity
from servetwin.sim.experiments.fleet import Replicas, times
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.step_times.roofline.server import RooflineServer, least_token_s
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate, limit

WIDTHS = (1, 2, 4, 8)
"""Devices of a machine that a server may take."""
_PART, _ALONE = 2000, 300
"""Requests on which layouts are compared, and which come alone."""
_APART_S = 1e5
_PRECISION = 0.04
_NEARLY = 0.9
"""Of as many devices, another choice must leave latencies this much lower."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A server of ``layout`` that ``command`` starts."""

    command: tuple[str, ...]
    layout: Layout
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """The target of every kind of device, and the ``most`` devices."""

    trace: Trace
    target: SLOTarget
    most: int
    seed: int = 0
    replications: int = 4


@dataclass(frozen=True, slots=True)
class Planned:
    """As many servers of ``candidate`` as ``at`` says, and whether they hold the target.

    ``capacity`` is theirs together; None where they miss the target, and for a trace without a
    rate. ``alone``: not even requests that come alone hold it.
    """

    candidate: Candidate
    at: how_many.TriedCount
    capacity: Capacity | None = None
    alone: bool = False

    @property
    def devices(self) -> int:
        """The devices of all servers."""
        return self.at.count * self.candidate.layout.devices


def layouts(model: ModelShape) -> Iterator[Layout]:
    """Yield the layouts of a server on one machine: attention ranks and experts, stages, tensor."""
    if model.experts():
        yield from (Layout(dp=width, ep=width) for width in WIDTHS[1:])
        yield from (Layout(tp=width, ep=width) for width in WIDTHS[1:])
    for stages in reversed(WIDTHS):
        yield from (Layout(width, stages) for width in WIDTHS if width * stages <= WIDTHS[-1])


def least_servers(trace: Trace, scenario: Scenario) -> int:
    """Return the servers that the arrivals keep busy at the peak FLOP/s of their data sheets.

    A token takes at least 2 P / F. Prompts that may be found in a prefix cache count nothing. It is
    1 where step times are not of data sheets.
    """
    if not isinstance(scenario.profile, RooflineServer):
        return 1
    may_hit = trace.has_prefix_ids or any(r.prompt is not None or r.parent_ids for r in trace)
    tokens = sum(r.output_tokens + (0 if may_hit else r.prompt_tokens) for r in trace)
    busy_s = tokens / len(trace) * least_token_s(scenario.profile.deployment)
    return max(1, ceil(trace.rate_per_s * busy_s))


def fewest_devices(
    question: PlanQuestion,
    candidates: Iterable[Candidate],
    variants: Callable[[Candidate], Iterable[Candidate]] = lambda candidate: (),
) -> Planned:
    """Return the candidate of the fewest devices, of equal ones that of the lowest latencies.

    Where none holds the target, it is the nearest. ``variants`` are other settings of the best.
    Raises ``TraceError`` for a trace that is too short to tell, and ``PolicyError`` where all
    candidates need more devices by the peaks of their data sheets.
    """
    trace, best, missed = question.trace, None, list[Planned]()
    part = _part(question)
    for candidate in sorted(candidates, key=lambda one: one.layout.devices):
        best = _better(question, part, candidate, best, missed)
    for candidate in variants(best.candidate) if best else ():
        best = _better(question, part, candidate, best, missed)
    if best and part is not trace:
        best = _searched(question, trace, best, question.most, missed)
    if not (best or missed):
        raise PolicyError(f"peak FLOP/s alone demand more than {question.most} devices")
    if best is None:
        return min(missed, key=lambda one: (one.alone, one.at.factor))
    if not trace.rate_per_s:
        return best
    servers, draws = times(best.candidate.scenario, best.at.count), question.replications
    capacity = find_capacity(
        trace, servers, question.target, seed=question.seed, precision=_PRECISION,
        replications=Replications(draws), known_per_s=trace.rate_per_s,
    )  # fmt: skip
    return replace(best, capacity=capacity)


def _part(question: PlanQuestion) -> Trace:
    """Return the part on which layouts are compared, at the rate of the whole trace."""
    trace, rate_per_s = question.trace, question.trace.rate_per_s
    most = max(_PART, 10 * how_many.least_requests(question.target.attainment))
    cut = len(trace) > most and rate_per_s
    return at_rate(limit(trace, most), rate_per_s) if cut else trace


def _better(
    question: PlanQuestion,
    part: Trace,
    candidate: Candidate,
    best: Planned | None,
    missed: list[Planned],
) -> Planned | None:
    """Return the better of a candidate and the best so far; bounds may spare its search."""
    most = best.devices if best else question.most
    if least_servers(part, candidate.scenario) * candidate.layout.devices > most:
        return best
    lonely = alone(question, candidate.scenario)
    if not lonely.holds:
        missed.append(Planned(candidate, lonely, alone=True))
        return best
    one = _searched(question, part, Planned(candidate, lonely), most, missed)
    if one is None or best is None:
        return one or best
    is_better = one.devices < best.devices or one.at.factor < _NEARLY * best.at.factor
    return one if is_better else best


def alone(question: PlanQuestion, scenario: Scenario) -> how_many.TriedCount:
    """Return what a server does where no request meets another one: of an even part of a trace."""
    trace = question.trace
    requests = trace.requests[:: max(1, len(trace) // _ALONE)]
    apart = [replace(r, arrival_s=n * _APART_S, delay_s=None) for n, r in enumerate(requests)]
    run = run_once(trace.replaced(apart, "alone"), scenario, seed=question.seed)
    return how_many.tried_count(1, run, question.target)


def _searched(
    question: PlanQuestion, trace: Trace, start: Planned, most: int, missed: list[Planned]
) -> Planned | None:
    """Return the fewest servers of a candidate; None where ``most`` devices miss the target."""
    servers = most // start.candidate.layout.devices
    counts = how_many.CountQuestion(question.target, servers, question.seed)
    result = how_many.search(Replicas(trace, start.candidate.scenario), counts, start.at.count)
    if result.missed and not result.held:
        missed.append(replace(start, at=result.missed))
    return replace(start, at=result.held) if result.held else None
