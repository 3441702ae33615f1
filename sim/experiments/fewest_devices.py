"""The fewest devices of a kind that keep an SLO: bounds, then a part of the trace, then all of it.

Every layout is searched on a part of the trace, the smallest first, and none beyond the devices of
the best so far. Two bounds spare searches: by the peaks of the data sheet a number of servers is
too small (``least_servers``), or not even requests that come alone keep the limits (``alone``).
The best layout is varied, then counted on the whole trace; its capacity takes few simulations. The
interval has two causes: other traffic (blocks of the trace, drawn anew: Künsch, "The jackknife and
the bootstrap for general stationary observations", 1989; its effect on latencies becomes one on the
rate by the slope between the simulations), and engines with step times of their own on the part.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from math import ceil, exp, hypot, log

import numpy as np

from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.experiments import how_many
from servetwin.sim.experiments.capacity import Draws, SLOTarget, slope_near
from servetwin.sim.experiments.fleet import Replicas, times
from servetwin.sim.experiments.predict import Interval, is_outside, run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.experiments.search import crossing_rate, turning_point
from servetwin.sim.explain.bottleneck import Limiting, find_bottleneck, limiting_resource
from servetwin.sim.records.metrics import margins
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.roofline.server import RooflineServer, least_token_s
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.generators.resampled import Resampling
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate, limit

# Devices of a machine that a server may take.
WIDTHS = (1, 2, 4, 8)
# Requests on which layouts are compared, and which come alone.
_PART, _ALONE = 2000, 300
_PIECES, _BLOCKS, _DRAWS = 20, 24, 300
_APART_S = 1e5
# About how much the logarithm of latencies grows with that of the load near the target.
_SLOPE = 2.0
# Standard deviations on either side that contain 90 %.
_SURE = 1.645
# Of a load, where it is not known, and of latencies over limits.
_LEAST = 0.1
# Of as many devices, another choice must leave latencies this much lower.
_NEARLY = 0.9


@dataclass(frozen=True, slots=True)
class Candidate:
    """A server of ``layout`` that ``command`` starts; of prefill and decode apart, all servers."""

    command: tuple[str, ...]
    layout: Layout
    scenario: Scenario

    @property
    def servers(self) -> int:
        """The servers at a count of 1."""
        cluster = self.scenario.cluster
        return max(1, cluster.prefill_replicas + cluster.decode_replicas)

    def apart(self, prefill: int, decode: int) -> "Candidate":
        """Return as many servers of each phase."""
        cluster = replace(self.scenario.cluster, prefill_replicas=prefill, decode_replicas=decode)
        return replace(self, scenario=replace(self.scenario, cluster=cluster))


@dataclass(frozen=True)
class PlanQuestion:
    """The target of every kind of device, the ``most`` devices, and ``spares`` of each role."""

    trace: Trace
    target: SLOTarget
    most: int
    seed: int = 0
    replications: int = 6
    spares: int = 0

    @cached_property
    def part(self) -> Trace:
        """The part on which layouts are compared, at the rate of the whole trace.

        Pieces of all loads, from the calmest to the busiest, stand for the tail as the whole does.
        """
        trace, rate_per_s = self.trace, self.trace.rate_per_s
        size = max(_PART, 10 * how_many.least_requests(self.target.attainment)) // _PIECES
        if len(trace) <= size * _PIECES or not rate_per_s:
            return trace
        if any(request.parent_ids for request in trace):
            return at_rate(limit(trace, size * _PIECES), rate_per_s)
        starts = range(0, len(trace) - size + 1, size)
        by_load = sorted((trace.requests[first : first + size] for first in starts), key=_load)
        part, end_s = list[Request](), 0.0
        for number in range(_PIECES):
            piece = by_load[(2 * number + 1) * len(by_load) // (2 * _PIECES)]
            later_s = end_s + 1 / rate_per_s - piece[0].arrival_s
            part += [replace(one, arrival_s=one.arrival_s + later_s) for one in piece]
            end_s = part[-1].arrival_s
        return at_rate(trace.replaced(part, f"{_PIECES} pieces of {size}"), rate_per_s)


@dataclass(frozen=True, slots=True)
class Planned:
    """As many servers of ``candidate`` as ``at`` says, and whether they hold the target.

    ``capacity_per_s`` is theirs together, with the interval of 90 %, ``limiting`` what limits it;
    None where they miss the target, and for a trace without a rate. ``alone``: not even requests
    that come alone hold it.
    """

    candidate: Candidate
    at: how_many.TriedCount
    capacity_per_s: Interval | None = None
    limiting: Limiting | None = None
    alone: bool = False

    @property
    def servers(self) -> int:
        """All servers, of prefill and decode together where they are apart."""
        return self.at.count * self.candidate.servers

    @property
    def spare_devices(self) -> int:
        """The devices of a spare of each role."""
        return self.candidate.layout.devices * (2 if self.candidate.scenario.cluster.splits else 1)

    @property
    def devices(self) -> int:
        """The devices of all servers."""
        return self.servers * self.candidate.layout.devices


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
    best, missed = None, list[Planned]()
    by_size = sorted(candidates, key=lambda one: one.layout.devices)
    for candidate in by_size:
        best = _better(question, candidate, best, missed)
    for candidate in variants(best.candidate) if best else ():
        best = _better(question, candidate, best, missed)
    if best and question.part is not question.trace:
        best = _searched(question, question.trace, best, question.most, missed)
    if not (best or missed):
        raise PolicyError(f"peak FLOP/s alone demand more than {question.most} devices")
    if best is None:
        return min(missed, key=lambda one: (one.alone, one.at.factor))
    for candidate in by_size:
        if not any(one.alone and one.candidate == candidate for one in missed):
            best = _apart(question, candidate, best) or best
    return _with_capacity(question, best) if question.trace.rate_per_s else best


def _apart(question: PlanQuestion, candidate: Candidate, best: Planned) -> Planned | None:
    """Return prefill and decode servers apart, if fewer devices than those of ``best`` do.

    On the part of the trace: the fewest for prefill beside ample ones for decode, then the fewest
    for decode beside them. On all of it the phase whose limit is missed gets more.
    """
    spares = question.spares * (2 * candidate.layout.devices - best.spare_devices)
    most = (best.devices - 1 - spares) // candidate.layout.devices

    def tried(trace: Trace, prefill: int, decode: int, load: float | None = None) -> Planned:
        apart = candidate.apart(prefill, decode)
        counts = how_many.CountQuestion(question.target, 1, question.seed, one_more=False)
        result = how_many.search(Replicas(trace, apart.scenario, load), counts)
        return Planned(apart, result.tried[0])

    def holds(prefill: int, decode: int, load: float | None = None) -> bool:
        return tried(question.part, prefill, decode, load).at.holds

    ample = partial(holds, decode=most, load=0.0)
    prefill = turning_point(ample, 1, most - 1, most // 2).above if most > 1 else None
    if prefill is None:
        return None
    decode = turning_point(partial(holds, prefill), 1, most - prefill, most - prefill).above
    while decode is not None and prefill + decode <= most:
        planned = tried(question.trace, prefill, decode)
        if planned.at.holds:
            return planned
        if _is_late(question.target, planned.at):
            prefill += 1
        else:
            decode += 1
    return None


def _is_late(target: SLOTarget, at: how_many.TriedCount) -> bool:
    """Return whether the first token exceeds its limit by the largest factor."""
    limits_s = asdict(target.slo)
    excess = {name: latency_s / limits_s[name] for name, latency_s in at.latencies_s.items()}
    return max(excess, key=excess.__getitem__) == "ttft_s"


def _with_capacity(question: PlanQuestion, best: Planned) -> Planned:
    """Return the servers with the capacity of the whole trace, and its interval."""
    trace, target, runs = question.trace, question.target, list[Run]()
    tried = {trace.rate_per_s: log(best.at.factor or _LEAST)}
    servers = times(best.candidate.scenario, best.at.count)

    def excess(rate_per_s: float) -> float:
        runs.append(run_once(at_rate(trace, rate_per_s), servers, seed=question.seed))
        return tried.setdefault(rate_per_s, target.excess(runs[-1]))

    guess_per_s = trace.rate_per_s * max(best.at.factor, _LEAST) ** (-1 / _SLOPE)
    most_per_s = trace.rate_per_s / (best.at.load or _LEAST)
    rate_per_s = crossing_rate(excess, guess_per_s, _SLOPE, most_per_s)
    settings, run = servers.policies.as_dict(), runs[-1]
    pressed = find_bottleneck(run, settings, servers.policies.kv_tokens)
    limiting = limiting_resource(run, pressed, settings, target.slo)
    width = _width(question, servers, run, tried, rate_per_s) if question.replications else 0.0
    interval = Interval(rate_per_s, rate_per_s * exp(-width), rate_per_s * exp(width))
    return replace(best, capacity_per_s=interval, limiting=limiting)


def _width(
    question: PlanQuestion,
    servers: Scenario,
    run: Run,
    tried: Mapping[float, float],
    rate_per_s: float,
) -> float:
    """Return half the interval of a capacity, in its logarithm: other traffic, other step times.

    Blocks of ``run`` are drawn for the traffic, engines on the part of the trace for the times.
    """
    from scipy.special import stdtrit

    target, engines = question.target, question.replications
    worst = margins(run.table("requests"), target.slo)
    blocks = np.array_split(worst, min(_BLOCKS, len(question.trace)))
    rng = np.random.default_rng(question.seed)
    numbers = rng.integers(len(blocks), size=(_DRAWS, len(blocks)))
    traffic = [target.excess_of(np.concatenate([blocks[n] for n in row])) for row in numbers]
    draws = Draws(Resampling(question.part), question.seed, is_outside(run))
    of_traffic = float(np.std(np.clip(traffic, -1, 1))) / slope_near(tried, rate_per_s)

    def excess(number: int, rate_per_s: float) -> float:
        return target.excess(draws.run(number, at_rate(question.part, rate_per_s), servers))

    others = [
        crossing_rate(partial(excess, number + 1), rate_per_s, _SLOPE, 4 * rate_per_s)
        for number in range(engines)
    ]
    return hypot(_SURE * of_traffic, float(np.std(np.log(others)) * stdtrit(engines, 0.95)))


def _load(piece: Sequence[Request]) -> float:
    """Return minus the seconds per token of a prompt, the more the busier."""
    return (piece[0].arrival_s - piece[-1].arrival_s) / sum(r.prompt_tokens for r in piece)


def _better(
    question: PlanQuestion, candidate: Candidate, best: Planned | None, missed: list[Planned]
) -> Planned | None:
    """Return the better of a candidate and the best so far; bounds may spare its search.

    So may a simulation of as many devices as the best has.
    """
    part, most = question.part, best.devices if best else question.most
    if least_servers(part, candidate.scenario) * candidate.layout.devices > most:
        return best
    lonely = alone(question, candidate.scenario)
    if not lonely.holds:
        missed.append(Planned(candidate, lonely, alone=True))
        return best
    if best:
        count = most // candidate.layout.devices
        run = run_once(part, times(candidate.scenario, count), seed=question.seed)
        lonely = how_many.tried_count(count, run, question.target)
        is_as_large = most % candidate.layout.devices == 0
        if not lonely.holds or (is_as_large and lonely.factor >= _NEARLY * best.at.factor):
            return best
    return _searched(question, part, Planned(candidate, lonely), most, missed) or best


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
    counts = how_many.CountQuestion(question.target, servers, question.seed, one_more=False)
    load = None if start.at.load is None else start.at.load * start.at.count
    replicas = Replicas(trace, start.candidate.scenario, load)
    result = how_many.search(replicas, counts, start.at.count)
    if result.missed and not result.held:
        missed.append(replace(start, at=result.missed))
    return replace(start, at=result.held) if result.held else None
