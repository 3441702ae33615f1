"""Compare a prediction with measurements: error, its confidence interval, verdict.

A verdict is an equivalence test of each metric that has a limit: it *holds* if the confidence
interval of the error lies within the limit, is *refuted* if it lies outside, and else the
measurement *cannot tell* (Schuirmann, "A comparison of the two one-sided tests procedure", 1987).
Nothing widens a limit. A forecast that states an interval is refuted only by what lies outside that
too: a calibration that knows the step times to 10 % did not say that TPOT is right to 5 %.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from servetwin.app.verdict.intervals import (
    MIN_REQUESTS,
    RelativeVariance,
    error_interval,
    variance_within,
)
from servetwin.app.words import asset_table
from servetwin.loadtest.report.records import client_limits
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.records.metrics import LATENCIES, VISIBLE, common, figure
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import LoadTestError

THROUGHPUT = "output_throughput_tokens_per_s"
JUDGED: Mapping[str, Any] = asset_table("verdicts.yaml")["judged"]
METRICS = tuple(JUDGED["metrics"])
# The relative errors that a prediction may have; metrics without a limit have no verdict.
DEFAULT_LIMITS: Mapping[str, float] = JUDGED["limits"]

Outcome = Literal["holds", "refuted", "cannot tell"]
SEVERITY: tuple[Outcome, ...] = ("holds", "cannot tell", "refuted")
EXIT_CODES: Mapping[Outcome, int] = {"holds": 0, "refuted": 1, "cannot tell": 3}

Prediction = Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric, predicted and measured, in its own unit; None where it is not known.

    ``error`` is (predicted - measured) / measured, ``error_low`` to ``error_high`` its confidence
    interval (``app.verdict.intervals``). ``noise`` is (max - min) / mean over the repeats,
    for information. ``outcome`` is None for a metric without a limit.
    """

    metric: str
    predicted: Interval | None
    measured: float | None
    error: float | None
    error_low: float | None
    error_high: float | None
    noise: float | None
    limit: float | None
    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The metrics of ``METRICS`` that all have; ``repeats`` measured runs are judged.

    ``doubts`` say why these runs cannot judge any prediction, and what would help. ``set_aside``
    is the number of further runs whose client was limited (``judgeable``), ``limited`` that of the
    judged ones.
    """

    metrics: tuple[MetricComparison, ...]
    repeats: int
    doubts: tuple[str, ...] = ()
    set_aside: int = 0
    limited: int = 0

    @property
    def outcome(self) -> Outcome:
        """The verdict: all metrics with a limit hold, one is refuted, or neither."""
        return verdict((row.outcome for row in self.metrics), self.doubts)

    def named(self, outcome: Outcome) -> list[str]:
        """Return the metrics with this outcome."""
        return [row.metric for row in self.metrics if row.outcome == outcome]

    @property
    def vague(self) -> list[str]:
        """The metrics that only the uncertainty of the forecast keeps from being refuted."""
        return [
            row.metric
            for row in self.metrics
            if row.outcome == "cannot tell"
            and None not in (row.limit, row.error_low, row.error_high)
            and is_outside(row.error_low or 0.0, row.error_high or 0.0, row.limit or 0.0)
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        return {"outcome": self.outcome, "holds": self.outcome == "holds", **asdict(self)}


def verdict(outcomes: Iterable[Outcome | None], doubts: Sequence[str]) -> Outcome:
    """Return the worst outcome of the judged metrics; with doubts, or none judged, no verdict."""
    known = [outcome for outcome in outcomes if outcome is not None]
    return worst(known) if known and not doubts else "cannot tell"


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return ``refuted`` if any is, else ``cannot tell`` if any is, else ``holds``."""
    return max(outcomes, key=SEVERITY.index, default="holds")


def compare(
    predicted: Run | Prediction,
    measured: Sequence[Run],
    limits: Mapping[str, float] = DEFAULT_LIMITS,
    *,
    requests: pd.DataFrame | None = None,
) -> Comparison:
    """Compare a prediction with one or more measurements of the same schedule.

    A predicted run is a point, with the latencies of each request; ``requests`` has these where
    intervals are predicted.

    A metric holds when the confidence interval of its relative error lies within its limit, is
    refuted when it lies outside, and else cannot be told. A prediction of what is undefined in the
    measurement, or the other way round, is refuted. Only ``judgeable`` runs count.
    Raises ``LoadTestError`` for a limit on an unknown metric.
    """
    if unknown := set(limits) - set(METRICS):
        raise LoadTestError(
            f"limit on unknown metric {min(unknown)!r}; known: {', '.join(METRICS)}"
        )
    if isinstance(predicted, Run):
        requests, summary = predicted.requests, predicted.summary()
        points = {
            m: value
            for m in common(METRICS, [summary])
            if (value := figure(summary, m)) is not None
        }
        predicted = {metric: Interval(value, value, value) for metric, value in points.items()}
    runs = judgeable(measured)
    figures, frames = [run.summary() for run in runs], [run.requests for run in runs]
    rows = [
        compare_metric(
            metric,
            predicted.get(metric),
            [figure(summary, metric) for summary in figures],
            [] if requests is None else [variance_within(metric, requests, one) for one in frames],
            limits.get(metric),
        )
        for metric in common(METRICS, figures)
        if metric in predicted or not metric.startswith(VISIBLE)
    ]
    set_aside = len(measured) - len(runs)
    doubts = tuple(doubts_about(runs))
    return Comparison(tuple(rows), len(runs), doubts, set_aside, count_limited(runs))


def compare_metric(
    metric: str,
    predicted: Interval | None,
    repeats: Sequence[float | None],
    within: Sequence[RelativeVariance | None],
    limit: float | None,
) -> MetricComparison:
    """Compare one metric with its figure in each load test (``compare``)."""
    values = [value for value in repeats if value is not None]
    measured = float(np.mean(values)) if values else None
    error = noise = low = high = None
    if measured and len(values) > 1:
        noise = (max(values) - min(values)) / measured
    if predicted and measured:
        error = (predicted.value - measured) / measured
        known = [one for one in within if one is not None]
        interval = error_interval(predicted.value, predicted.standard_error, values, known)
        low, high = interval or (None, None)
    outcome = None if limit is None else outcome_of(predicted, low, high, limit)
    if outcome and (predicted is None) != (measured is None):
        outcome = "refuted"
    return MetricComparison(metric, predicted, measured, error, low, high, noise, limit, outcome)


def compare_pairs(
    metric: str,
    pairs: Iterable[Sequence[float | None]],
    within: Sequence[RelativeVariance | None],
    limit: float | None,
    unsure: float = 0.0,
) -> MetricComparison:
    """Compare a metric that each load test has predicted and measured, of its own.

    ``unsure`` is the relative half width of the prediction (90 %).
    """
    known = [(ours, theirs) for ours, theirs in pairs if ours and theirs]
    level = float(np.mean([ours for ours, _ in known])) if known else None
    return compare_metric(
        metric,
        None if level is None else Interval(level, level / (1 + unsure), level * (1 + unsure)),
        [theirs * (level or 0.0) / ours for ours, theirs in known],
        within,
        limit,
    )


def outcome_of(
    predicted: Interval | None, low: float | None, high: float | None, limit: float
) -> Outcome:
    """Return the outcome of an error whose interval is ``low`` to ``high``."""
    if predicted is None or low is None or high is None:
        return "cannot tell"
    if -limit <= low and high <= limit:
        return "holds"
    outside = is_outside(*with_forecast(predicted, low, high), limit)
    return "refuted" if outside else "cannot tell"


def is_outside(low: float, high: float, limit: float) -> bool:
    """Return whether an interval lies outside a limit, on either side."""
    return high < -limit or low > limit


def with_forecast(predicted: Interval, low: float, high: float) -> tuple[float, float]:
    """Return the interval of an error that also has the uncertainty of the forecast.

    The two are independent: the half widths of their logarithms add in squares.
    """
    centre, half = math.log((1 + low) * (1 + high)) / 2, math.log((1 + high) / (1 + low)) / 2
    below = math.log(predicted.value / predicted.low) if predicted.low > 0 else math.inf
    above = math.log(predicted.high / predicted.value)
    return (
        math.exp(centre - math.hypot(half, below)) - 1,
        math.exp(centre + math.hypot(half, above)) - 1,
    )


def doubts_about(measured: Sequence[Run]) -> list[str]:
    """Return why the runs cannot judge a prediction, and what would help."""
    fewest = min((int((run.requests["status"] == "finished").sum()) for run in measured), default=0)
    return [*limited_clients(measured), *too_few(fewest, "finished")]


def judgeable(measured: Sequence[Run]) -> list[Run]:
    """Return the runs that a verdict rests on.

    Those whose client kept up, whatever they measured, if there are at least two; else all, and
    their doubts say why they cannot judge.
    """
    kept_up = [run for run in measured if not client_limits(run)]
    return kept_up if len(kept_up) > 1 else list(measured)


def count_limited(runs: Sequence[Run]) -> int:
    """Return how many runs had a limited client."""
    return sum(bool(client_limits(run)) for run in runs)


def limited_clients(runs: Sequence[Run]) -> list[str]:
    """Return the doubt about load tests whose client was the limit (``doubts_about``), if any."""
    limited = [why for run in runs if (why := client_limits(run))]
    if not limited:
        return []
    return [
        f"the client was limited in {len(limited)} of {len(runs)} load tests "
        f"({limited[0][0]}); give it a core of its own, or more --processes"
    ]


def too_few(count: int, kind: str) -> list[str]:
    """Return the doubt about runs of ``count`` requests of a ``kind``, if they are too few."""
    if count >= MIN_REQUESTS:
        return []
    return [f"{count} {kind} requests are too few; send at least {MIN_REQUESTS}, better 200"]


@dataclass(frozen=True, slots=True)
class RequestDifferences:
    """The differences of single requests: ``frame`` has those that finished on both sides.

    Its columns are ``request_id``, and ``ttft_s``, ``tpot_s``, ``e2e_s`` with the suffixes
    ``_predicted``, ``_measured`` and ``_difference`` (predicted - measured). ``unmatched`` has the
    reason why a request is not in it.
    """

    frame: pd.DataFrame
    unmatched: Mapping[str, str]


def compare_requests(predicted: Run, measured: Run) -> RequestDifferences:
    """Join two runs on the request id."""
    columns = ["request_id", "status", *LATENCIES]
    both = predicted.requests[columns].merge(
        measured.requests[columns],
        on="request_id",
        how="outer",
        suffixes=("_predicted", "_measured"),
    )
    sides = both[["status_predicted", "status_measured"]]
    matched = (sides == "finished").all(axis=1)
    frame = both[matched].drop(columns=sides.columns).reset_index(drop=True)
    for name in LATENCIES:
        frame[f"{name}_difference"] = frame[f"{name}_predicted"] - frame[f"{name}_measured"]
    rest = both[~matched].fillna({"status_predicted": "absent", "status_measured": "absent"})
    statuses = zip(rest["status_predicted"], rest["status_measured"], strict=True)
    reasons = (f"{before} in the prediction, {after} in the run" for before, after in statuses)
    return RequestDifferences(frame, dict(zip(rest["request_id"], reasons, strict=True)))
