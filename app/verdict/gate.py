"""A gate: are runs worse than their baselines by more than a limit?

Each metric with a limit is tested for non-inferiority, the one side of the test of
``app.verdict.claims``: it *holds* if the whole confidence interval of its change is better
than the limit, is *refuted* if the whole interval is worse, and else the runs *cannot tell*. What
is faster than the baseline holds.

The chance has two sources as in ``app.verdict.intervals``, and the larger one counts:
within a run, by a block bootstrap of the requests of both sides together; and between runs, by the
variance of the figures of either side around its mean, where a side has several. Baselines before
and after the runs (A/B/A) show what the machine did meanwhile: where they differ by more than a
limit themselves, nothing can be told.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, product
from statistics import fmean
from typing import Any

import pandas as pd

from servetwin.app.verdict import claims
from servetwin.app.verdict.intervals import RelativeVariance, ratio_interval, variance_within
from servetwin.app.verdict.same_load import broke_off, endpoint_differences, require_same_load
from servetwin.sim.records.metrics import common, figure, measured
from servetwin.sim.records.run import Run, RunKind
from servetwin.workloads.errors import LoadTestError, require_name
from servetwin.workloads.program.key_values import key_values, share_in
from servetwin.workloads.request import CANCELLED_BY_TEST

# The share of the requests that finished: a server that refuses half of them is not faster.
FINISHED = "finished"

# How much worse than its baseline a metric may be, as a share of the baseline.
GATE_LIMITS: Mapping[str, float] = {**claims.DEFAULT_LIMITS, FINISHED: 0.01}

MORE_IS_BETTER = (claims.THROUGHPUT, FINISHED)
# Metrics by their names on the command line: ``ttft`` for ``ttft_s.mean``, ``ttft.p90``.
_SHORT: Mapping[str, str] = {
    name.replace(claims.THROUGHPUT, "throughput").replace("_s.", ".").removesuffix(".mean"): name
    for name in (*claims.METRICS, FINISHED)
}


@dataclass(frozen=True, slots=True)
class MetricChange:
    """One metric of the baselines and of the runs: means, in its own unit; None if undefined.

    ``change`` is run / baseline - 1, ``low`` to ``high`` its confidence interval. ``limit`` is the
    share of the baseline by which the metric may be worse; ``smallest`` is the change for the worse
    from which runs like these would have been refuted. ``faster`` says that the whole interval is
    better than the baseline.
    """

    metric: str
    baseline: float | None
    run: float | None
    change: float | None
    low: float | None
    high: float | None
    limit: float | None
    smallest: float | None
    faster: bool
    outcome: claims.Outcome | None


@dataclass(frozen=True, slots=True)
class Gate:
    """The metrics of ``METRICS`` that all have, ``FINISHED``, the kind and numbers of the runs.

    ``doubts`` say why these runs cannot judge, and what would help.
    """

    metrics: tuple[MetricChange, ...]
    kind: RunKind
    baselines: int
    runs: int
    doubts: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    """What was asked of the endpoints otherwise, where that is allowed."""

    @property
    def outcome(self) -> claims.Outcome:
        """The verdict: all metrics with a limit hold, one is refuted, or neither."""
        return claims.verdict((row.outcome for row in self.metrics), self.doubts)

    def named(self, outcome: claims.Outcome) -> list[str]:
        """Return the metrics with this outcome."""
        return [row.metric for row in self.metrics if row.outcome == outcome]

    def as_dict(self) -> dict[str, Any]:
        """Return the gate for JSON."""
        return {"outcome": self.outcome, "holds": self.outcome == "holds", **asdict(self)}


def parse_limits(text: str, where: str = "--allow") -> dict[str, float]:
    """Read limits: ``tpot=5%,ttft.p90=10%``, shares of the baseline by which a metric may be worse.

    Raises ``LoadTestError`` naming the part that cannot be read.
    """
    limits = {}
    form = "METRIC=SHARE; write for example tpot=5%,ttft.p90=10%"
    for name, share in key_values(text, where, LoadTestError, form).items():
        require_name(name, _SHORT, f"{where}: unknown metric", LoadTestError)
        limit = share_in(share)
        if not 0 < limit < 1:
            raise LoadTestError(
                f"{where}: {name}={share}: not a share such as 5%, above 0, below 1"
            )
        limits[_SHORT[name]] = limit
    if not limits:
        raise LoadTestError(f"{where} {text!r}: no limit; {form}")
    return limits


def judge(
    baselines: Mapping[str, Run],
    runs: Mapping[str, Run],
    limits: Mapping[str, float] | None = None,
    *,
    asked_alike: bool = True,
) -> Gate:
    """Judge runs against baselines of the same load; both by the name that a message gives them.

    Without ``limits`` those of ``GATE_LIMITS`` count that all runs have a figure for.

    Unless they must be ``asked_alike``, the same requests may have gone to another model or API, or
    with other bodies. Raises ``LoadTestError`` for runs that cannot be compared: another trace,
    rate or setting.
    """
    (first, reference), *others = [*baselines.items(), *runs.items()]
    matched = {
        name: require_same_load(first, reference, name, run, asked_alike=asked_alike)
        for name, run in others
    }
    ours = [reference, *(matched[name] for name in [*baselines][1:])]
    theirs = [matched[name] for name in runs]
    both = [
        endpoint_differences(first, reference, name, run)
        for name, run in others
        if run.kind == reference.kind == "loadtest"
    ]
    known = common(claims.METRICS, [run.summary() for run in (*ours, *theirs)])
    judged = {m: of for m, of in (limits or GATE_LIMITS).items() if m in (*known, FINISHED)}
    metrics = [metric_change(metric, ours, theirs, judged.get(metric)) for metric in known]
    rows = (*metrics, _finished(ours, theirs, judged.get(FINISHED)))
    if any(map(broke_off, (*baselines.values(), *runs.values()))):
        rows = tuple(replace(r, outcome=r.outcome and "cannot tell", faster=False) for r in rows)
    doubts = [*_doubts({**baselines, **runs}, ours, theirs), *_drift(ours, judged)]
    doubts += [
        f"--allow {_name(m)}: not every run marks its reasoning; limit ttft"
        for m in (limits or judged).keys() - judged.keys()
    ]
    differences = tuple(chain.from_iterable(both))
    return Gate(rows, reference.kind, len(ours), len(theirs), tuple(doubts), differences)


def _doubts(named: Mapping[str, Run], ours: Sequence[Run], theirs: Sequence[Run]) -> Iterator[str]:
    """Yield why the runs cannot judge; a run whose requests failed is judged by that."""
    for name, run in named.items():
        if broke_off(run):
            yield f"{name} was broken off before all was sent; measure it again"
    yield from claims.limited_clients([*ours, *theirs])
    yield from claims.too_few(min(len(_counted(run)) for run in theirs), "counted")
    yield from claims.too_few(min(len(_served(run)) for run in ours), "finished")


def _counted(run: Run) -> pd.DataFrame:
    """Return the requests that a client wanted answered, without warm-up."""
    requests = measured(run.requests)
    return requests[requests["error"] != CANCELLED_BY_TEST]


def _served(run: Run) -> pd.DataFrame:
    requests = measured(run.requests)
    return requests[requests["status"] == "finished"]


def _drift(baselines: Sequence[Run], limits: Mapping[str, float]) -> Iterator[str]:
    """Yield the doubt about baselines that differ by more than a limit, by its worst metric."""
    drifts = []
    for metric, limit in limits.items():
        values = [value for run in baselines if (value := _value(run, metric))]
        if values and (apart := max(values) / min(values) - 1) > limit:
            drifts.append((apart / limit, metric, apart, limit))
    if drifts:
        _, metric, apart, limit = max(drifts)
        yield (
            f"the machine drifted: the baselines are {apart:.1%} apart in {_name(metric)}, more "
            "than its "
            f"limit of {limit:.1%}; let nothing else run there, and measure again in turns (A/B/A)"
        )


def _name(metric: str) -> str:
    """Return what a metric is called on the command line."""
    return next(short for short, long in _SHORT.items() if long == metric)


def _value(run: Run, metric: str) -> float | None:
    """Return a figure of a run: of the median replication where it has replications."""
    if metric == FINISHED:
        counted = len(_counted(run))
        return len(_served(run)) / counted if counted else None
    if draws := run.extra.get("intervals", {}).get(metric):
        return float(draws["median"])
    return figure(run.summary(), metric)


def metric_change(
    metric: str, baselines: Sequence[Run], runs: Sequence[Run], limit: float | None
) -> MetricChange:
    """Judge one of ``METRICS``; without a limit it only informs."""
    sides = [[_value(run, metric) for run in side] for side in (baselines, runs)]
    known = [[value for value in side if value] for side in sides]
    parts = [_between(known), _within(metric, baselines, runs)] if all(known) else []
    chance = max(filter(None, parts), key=lambda part: part.value, default=None)
    return _judged(metric, known, chance, limit)


def _finished(baselines: Sequence[Run], runs: Sequence[Run], limit: float | None) -> MetricChange:
    """Judge the share of finished requests, whose chance is that of a binomial share."""
    counts = [sum(len(_counted(run)) for run in side) for side in (baselines, runs)]
    served = [sum(len(_served(run)) for run in side) for side in (baselines, runs)]
    change = _judged(FINISHED, *_shares(served, counts), limit)
    if limit is None or not served[0]:
        return change
    for lost in range(counts[1]):
        less = _judged(FINISHED, *_shares([served[0], counts[1] - lost], counts), limit)
        if less.outcome == "refuted":
            return replace(change, smallest=-(less.change or 0.0))
    return replace(change, smallest=None)


def _shares(
    served: Sequence[int], counts: Sequence[int]
) -> tuple[list[list[float]], RelativeVariance]:
    """Return the shares that are not 0, and the variance of their ratio."""
    pairs = [(part / count, count) for part, count in zip(served, counts, strict=True) if part]
    chance = sum((1 - share) / (share * count) for share, count in pairs)
    known = [[part / count] if part else [] for part, count in zip(served, counts, strict=True)]
    return known, RelativeVariance(chance, math.inf)


def _between(sides: Sequence[Sequence[float]]) -> RelativeVariance | None:
    """Return the variance of the ratio of two means by how the runs of each side differ."""
    freedom = sum(len(side) - 1 for side in sides)
    if not freedom:
        return None
    squares = sum((value / fmean(side) - 1) ** 2 for side in sides for value in side)
    return RelativeVariance(squares / freedom * sum(1 / len(side) for side in sides), freedom)


def _within(metric: str, baselines: Sequence[Run], runs: Sequence[Run]) -> RelativeVariance | None:
    """Return the variance of the ratio of two means by the chance within the runs.

    A pair's variance is that of both its runs, taken as equally large: the mean of n baselines and
    of m runs has (1 / n + 1 / m) / 2 of it.
    """
    pairs = [
        variance
        for ours, theirs in product(map(_served, baselines), map(_served, runs))
        if (variance := variance_within(metric, ours, theirs))
    ]
    draws = [_of_draws(run, metric) for run in (*baselines, *runs)]
    share = 1 / len(baselines) + 1 / len(runs)
    if all(one is not None for one in draws):
        return RelativeVariance(fmean(filter(None, draws)) * share, math.inf)
    if not pairs:
        return None
    freedom = fmean(one.freedom for one in pairs) * min(len(baselines), len(runs))
    drawn = [one for one in draws if one is not None]  # of the simulated side
    unsure = fmean(drawn) / len(drawn) if drawn else 0.0
    return RelativeVariance(fmean(one.value for one in pairs) * share / 2 + unsure, freedom)


def _of_draws(run: Run, metric: str) -> float | None:
    """Return the relative Monte-Carlo variance of a replay that kept its replications."""
    draws = run.extra.get("intervals", {}).get(metric)
    return (draws["standard_error"] / draws["median"]) ** 2 if draws else None


def _judged(
    metric: str,
    known: Sequence[Sequence[float]],
    chance: RelativeVariance | None,
    limit: float | None,
) -> MetricChange:
    baseline, run = (fmean(side) if side else None for side in known)
    sign = -1 if metric in MORE_IS_BETTER else 1
    change = low = high = smallest = outcome = None
    if baseline and run:
        change = run / baseline - 1
        if chance:
            low, high = ratio_interval(run / baseline, [chance])
    if limit is not None:
        outcome = _outcome(low, high, limit, sign)
        if baseline and not run:
            outcome = "refuted"
    if limit is not None and low is not None and high is not None:
        width = math.sqrt((1 + high) / (1 + low))
        smallest = abs((1 + sign * limit) * width**sign - 1)
    faster = low is not None and high is not None and (low > 0 if sign < 0 else high < 0)
    return MetricChange(metric, baseline, run, change, low, high, limit, smallest, faster, outcome)


def _outcome(low: float | None, high: float | None, limit: float, sign: int) -> claims.Outcome:
    """Return the outcome; ``sign`` is that of a change for the worse."""
    if low is None or high is None:
        return "cannot tell"
    best, worst = (low, high) if sign > 0 else (-high, -low)
    if worst <= limit:
        return "holds"
    return "refuted" if best > limit else "cannot tell"
