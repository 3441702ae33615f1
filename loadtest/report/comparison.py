"""Compares a prediction with a measurement: error, noise floor, verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from sim.experiments.predict import Interval
from sim.records.metrics import LATENCIES, figure
from sim.records.run import Run
from workloads.errors import LoadTestError
from workloads.trace import Trace

METRICS = (
    "output_throughput_tokens_per_s",
    "tpot_s.mean",
    "ttft_s.mean",
    "ttft_s.p50",
    "ttft_s.p90",
    "ttft_s.p99",
    "e2e_s.mean",
)
DEFAULT_LIMITS: Mapping[str, float] = {
    "output_throughput_tokens_per_s": 0.03,
    "tpot_s.mean": 0.05,
    "ttft_s.mean": 0.10,
    "ttft_s.p90": 0.10,
}
"""The relative errors that a prediction may have; metrics without a limit have no verdict."""

NOISE_MULTIPLE = 2.0
"""An error below this many noise floors may be the spread of the engine itself."""

Prediction = Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric, predicted and measured, in its own unit; None where it is not known.

    ``error`` is (predicted - measured) / measured, ``noise`` (max - min) / mean over the repeats.
    ``holds`` is None for a metric without a limit.
    """

    metric: str
    predicted: Interval | None
    measured: float | None
    error: float | None
    noise: float | None
    limit: float | None
    holds: bool | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every metric of ``METRICS``; ``repeats`` is the number of measured runs."""

    metrics: tuple[MetricComparison, ...]
    repeats: int

    @property
    def holds(self) -> bool:
        """Whether every metric with a limit keeps within it."""
        return all(row.holds is not False for row in self.metrics)

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        return {"holds": self.holds, **asdict(self)}


def compare(
    predicted: Run | Prediction | Sequence[Run],
    measured: Sequence[Run],
    limits: Mapping[str, float] = DEFAULT_LIMITS,
) -> Comparison:
    """Compare a prediction with one or more measurements of the same schedule.

    The mean and range of several predicted runs (other seeds) are the interval; one run is a point.
    A metric holds when its absolute relative error is at most its limit or twice the noise floor,
    whichever is larger, and does not hold where one side is undefined. Raises ``LoadTestError`` for
    a limit on an unknown metric.
    """
    if unknown := set(limits) - set(METRICS):
        raise LoadTestError(
            f"limit on unknown metric {min(unknown)!r}; known: {', '.join(METRICS)}"
        )
    prediction = predicted if isinstance(predicted, Mapping) else _interval_per_metric(predicted)
    summaries = [run.summary() for run in measured]
    rows = (
        _compare_metric(
            metric,
            prediction.get(metric),
            [figure(summary, metric) for summary in summaries],
            limits.get(metric),
        )
        for metric in METRICS
    )
    return Comparison(tuple(rows), len(measured))


def _interval_per_metric(predicted: Run | Sequence[Run]) -> Prediction:
    runs = [predicted] if isinstance(predicted, Run) else predicted
    summaries = [run.summary() for run in runs]
    intervals = {}
    for metric in METRICS:
        values = [v for v in (figure(summary, metric) for summary in summaries) if v is not None]
        if values:
            intervals[metric] = Interval(float(np.mean(values)), min(values), max(values))
    return intervals


def _compare_metric(
    metric: str,
    predicted: Interval | None,
    repeats: Sequence[float | None],
    limit: float | None,
) -> MetricComparison:
    values = [value for value in repeats if value is not None]
    measured = float(np.mean(values)) if values else None
    error = (predicted.value - measured) / measured if predicted and measured else None
    noise = (max(values) - min(values)) / measured if len(values) > 1 and measured else None
    holds = None
    if limit is not None:
        holds = error is not None and abs(error) <= max(limit, NOISE_MULTIPLE * (noise or 0.0))
    return MetricComparison(metric, predicted, measured, error, noise, limit, holds)


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


def check_same_load(predicted: Run, trace: Trace, *, closed_loop: bool = False) -> None:
    """Check that a prediction is for the load of this trace.

    Raises ``LoadTestError`` naming the first request whose arrival or prompt length differs. A
    measured run counts prompt tokens in its own way, so only its arrivals are compared. In a closed
    loop the arrivals of followers are results, and a prediction for an open loop is refused.
    """
    if closed_loop and predicted.scenario.get("cluster", {}).get("closed_loop") is False:
        raise LoadTestError(
            "--against: the prediction is for an open loop; predict without --open-loop"
        )
    followers = {r.request_id for r in trace if closed_loop and r.parent_id is not None}
    columns = ["scheduled_s", *(["prompt_tokens"] if predicted.kind == "simulation" else [])]
    ours = pd.DataFrame(
        [(r.request_id, r.arrival_s, r.prompt_tokens) for r in trace],
        columns=["request_id", "scheduled_s", "prompt_tokens"],
    ).set_index("request_id")[columns]
    theirs = predicted.requests.set_index("request_id")[columns]
    if len(theirs) != len(ours):
        raise LoadTestError(
            f"--against: the prediction has {len(theirs)} requests, the trace {len(ours)}; "
            "give the same trace and the same options to both"
        )
    theirs = theirs.reindex(ours.index)
    equal = np.isclose(ours, theirs, rtol=1e-9, atol=1e-6)
    equal[:, 0] |= ours.index.isin(followers) & theirs["scheduled_s"].notna()
    same = equal.all(axis=1)
    if not same.all():
        first = ours.index.to_numpy()[~same][0]
        raise LoadTestError(
            f"--against: request {first!r} of the trace has another arrival or prompt length in "
            "the prediction; give the same trace and options to both"
        )
