"""How many replicas keep an SLO, or how many users they serve: a search over whole numbers.

One search simulates the trace as it is, with the fitted step times, at ever more replicas or users
until the target turns, then between the last two counts. Where the arrivals of an open loop exceed
what the servers complete, the target is missed even if the trace ends before the limit is: the
queue would grow for as long as it lasts.

Each replication draws other traffic of the same kind (``Resampling``) and an engine, the same for
every count and every candidate (common random numbers), and searches from the first answer on. So
it has a count of its own, and figures at the first answer and at its neighbour. An interval has
90 % of such counts or figures, by their order statistics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, exp, inf, isfinite

import numpy as np

from servetwin.sim.experiments.capacity import Draws, Replications, SLOTarget
from servetwin.sim.experiments.fleet import ScaledScenario, Simulate
from servetwin.sim.experiments.predict import is_outside, run_once
from servetwin.sim.experiments.search import TurningPoint, turning_point
from servetwin.sim.records.metrics import LATENCIES
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.resampled import Resampling
from servetwin.workloads.rows import counted as counted_words

# The largest count; of replicas at most one for each request.
MOST = 1024
REPLICATIONS = 20
_TAIL = 0.05
# A load that is 1 but for rounding is not above it.
_FULL = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class CountQuestion:
    """The target of every candidate; ``most`` is the largest count that is tried.

    Counts of users differ by ``precision`` at the end, a share of the lower one. ``one_more`` of
    replicas is tried, so that the answer has a neighbour on either side.
    """

    target: SLOTarget
    most: int = MOST
    seed: int = 0
    precision: float = 0.01
    one_more: bool = True


@dataclass(frozen=True, slots=True)
class TriedCount:
    """A count that was simulated.

    ``share`` of the ``requests`` keep the SLO. ``latencies_s`` are those that the attainment of the
    target has, inf where requests are not answered; ``factor`` on all limits just meets it.
    ``load`` is arrivals over completions, None in a closed loop.
    """

    count: int
    requests: int
    share: float
    latencies_s: Mapping[str, float]
    factor: float
    load: float | None
    holds: bool


@dataclass(frozen=True, slots=True)
class CountSearch:
    """One search: what it tried, in the order of the counts, and where the target turned."""

    tried: tuple[TriedCount, ...]
    turning: TurningPoint
    more_holds: bool
    is_outside: bool = False
    """Whether step times were extrapolated."""

    @property
    def count(self) -> int | None:
        """The fewest replicas or the most users; None where no number of replicas holds."""
        return self.turning.above if self.more_holds else self.turning.below or 0

    @property
    def missed(self) -> TriedCount | None:
        """The nearest count that was tried and misses the target; None where all hold."""
        below, above = self.turning.below, self.turning.above
        return self.at(below if self.more_holds else above)

    @property
    def held(self) -> TriedCount | None:
        """The count of the answer; None where none holds."""
        return self.at(self.count)

    def at(self, count: int | None) -> TriedCount | None:
        """Return the result at a count; None if it was not tried."""
        return next((one for one in self.tried if one.count == count), None)


@dataclass(frozen=True, slots=True)
class HowMany:
    """The answer: the search on the trace itself, and those of the replications."""

    first: CountSearch
    draws: tuple[CountSearch, ...] = ()

    @property
    def count(self) -> int | None:
        """The fewest replicas or the most users, of the trace itself."""
        return self.first.count

    def interval(self) -> tuple[int | None, int | None] | None:
        """Return the counts between which 90 % of such traffic lies; None without replications.

        An end is None where no count that was tried holds.
        """
        if len(self.draws) < 2:
            return None
        first, *counts = (
            inf if search.count is None else search.count for search in (self.first, *self.draws)
        )
        low, high = _ends(counts)
        ends = min(low, first), max(high, first)
        fewest, most = (int(end) if isfinite(end) else None for end in ends)
        return fewest, most

    def factors(self, count: int) -> tuple[float, float] | None:
        """Return the interval of the factor at a count; None unless all replications tried it."""
        factors = [one.factor for search in self.draws if (one := search.at(count))]
        first = self.first.at(count)
        if first is None or not len(factors) == len(self.draws) > 1:
            return None
        low, high = _ends(factors)
        return min(low, first.factor), max(high, first.factor)

    def holding(self, count: int) -> int | None:
        """Return in how many replications a count holds; None unless all tried it."""
        holds = [one.holds for search in self.draws if (one := search.at(count))]
        return sum(holds) if len(holds) == len(self.draws) > 0 else None


def how_many(
    counted: ScaledScenario,
    question: CountQuestion,
    replications: Replications = Replications(),  # noqa: B008, it is frozen
) -> HowMany:
    """Search on the trace of ``counted``, then in replications around that answer.

    Raises ``TraceError`` for a trace that is too short to tell.
    """
    first = search(counted, question)
    draws = replications.map(partial(search_drawn, counted, question, first))
    return HowMany(first, tuple(draws))


def search(counted: ScaledScenario, question: CountQuestion, guess: int = 1) -> CountSearch:
    """Search on the trace as it is, with the fitted step times, from ``guess`` or the load on."""

    tries = _Tries(counted, question, partial(run_once, seed=question.seed))
    first = tries.search(max(guess, ceil((tries.load or 0.0) / _FULL)))
    more = question.one_more and counted.more_holds
    if more and (count := first.count) and count < question.most:
        tries.at(count + 1)
    return tries.so_far(first.turning)


def search_drawn(
    counted: ScaledScenario, question: CountQuestion, first: CountSearch, number: int
) -> CountSearch:
    """Search in replication ``number``, from 1 on: with traffic and an engine of its own."""
    draws = Draws(Resampling(counted.trace), question.seed, first.is_outside)
    replication = replace(counted, trace=draws.trace(number))
    tries = _Tries(replication, question, partial(draws.run, number))
    for one in (first.held, first.missed):
        if one is not None:
            tries.at(one.count)
    return tries.search(first.count)


class _Tries:
    """The counts that one search simulates, each once."""

    def __init__(
        self, counted: ScaledScenario, question: CountQuestion, simulate: Simulate
    ) -> None:
        self._counted, self._question, self._simulate = counted, question, simulate
        _require_enough(len(counted.trace), question.target, counted.trace.source)
        self.load = counted.load(simulate)
        self._tried: dict[int, TriedCount] = {}
        self._is_outside = False

    def search(self, guess: int | None) -> CountSearch:
        """Look for the turning point from ``guess`` on."""
        more_holds, question = self._counted.more_holds, self._question
        precision = 0.0 if more_holds else question.precision
        most = min(question.most, len(self._counted.trace)) if more_holds else question.most
        turning = turning_point(
            lambda count: self.at(count).holds is more_holds, 1, most, guess, precision
        )
        return self.so_far(turning)

    def so_far(self, turning: TurningPoint) -> CountSearch:
        """Return the search as it stands."""
        tried = tuple(self._tried[count] for count in sorted(self._tried))
        return CountSearch(tried, turning, self._counted.more_holds, self._is_outside)

    def at(self, count: int) -> TriedCount:
        """Return the result of a count, simulated where it was not."""
        if count not in self._tried:
            self._tried[count] = self._try(count)
        return self._tried[count]

    def _try(self, count: int) -> TriedCount:
        trace, scenario = self._counted.at(count)
        whole, target = self._simulate(trace, scenario), self._question.target
        if "provenance" in whole.extra:  # of the fitted step times
            self._is_outside |= is_outside(whole)
        run = replace(whole, requests=self._counted.judged_requests(whole, trace))
        _require_enough(len(run.requests), target, f"{trace.source}, while all are at work")
        return tried_count(count, run, target, self.load)


def tried_count(count: int, run: Run, target: SLOTarget, load: float | None = None) -> TriedCount:
    """Return what a run says of a target; ``load`` is that of a count of 1."""
    share, excess = target.shares(run)["all"], target.excess(run)
    at_count = None if load is None else load / count
    holds = share >= target.attainment and (at_count is None or at_count <= _FULL)
    latencies_s = _latencies_s(run, target)
    return TriedCount(count, len(run.requests), share, latencies_s, exp(excess), at_count, holds)


def least_requests(attainment: float) -> int:
    """Return how many requests can tell what a share of them keeps: one of them may miss."""
    return 1 if attainment >= 1 else ceil(1 / (1 - attainment) - 1e-9)


def _require_enough(requests: int, target: SLOTarget, source: str) -> None:
    if requests < (least := least_requests(target.attainment)):
        raise TraceError(
            f"{source}: {counted_words(requests, 'request')} cannot tell what "
            f"{100 * target.attainment:g} % of them keep: take at least {least}, or a lower share"
        )


def _latencies_s(run: Run, target: SLOTarget) -> dict[str, float]:
    """Return the latency that the attainment of a target has, by name, where it has a limit."""
    rows = run.requests
    is_answered = rows["status"].to_numpy() == "finished"
    latencies_s = {}
    for name in LATENCIES:
        if getattr(target.slo, name) is not None:
            values = np.where(is_answered, np.nan_to_num(rows[name].to_numpy(float)), inf)
            latencies_s[name] = target.reached_by(values)
    return latencies_s


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the order statistics between which 90 % of such values lie."""
    rank = max(1, int(_TAIL * (len(values) + 1)))
    ordered = sorted(values)
    return ordered[rank - 1], ordered[-rank]
