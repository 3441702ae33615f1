"""Judge a prediction by a run that others recorded: same requests, no load test."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from servetwin.app.verdict.claims import DEFAULT_LIMITS, METRICS, Comparison, Outcome, compare
from servetwin.app.verdict.intervals import MIN_REQUESTS
from servetwin.app.verdict.measured_facts import measured_facts
from servetwin.app.verdict.verification import VERDICT
from servetwin.app.verdict.why.explanation import WHY, Explanation, explain_error
from servetwin.loadtest.recorded.recorded_run import RecordedRun
from servetwin.sim.experiments.predict import Interval, interval, is_outside, replication, run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import LATENCIES, common, figure
from servetwin.sim.records.run import Files, Run, save_files, within
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.trace import Trace

MOST_REPLICATIONS, FEWEST_REPLICATIONS = 200, 20
# Wall time for the replications behind the intervals, if at least the fewest fit.
BUDGET_S = 4.0
POINTS = ("mean", "p50", "p90", "p99")


@dataclass(frozen=True, slots=True)
class RecordedVerification:
    """What was predicted for a recorded run, and how far it is off.

    ``predicted`` is the simulation with the best estimate of the step times, ``intervals`` are over
    their uncertainty, around it.
    """

    scenario: Scenario
    predicted: Run
    intervals: Mapping[str, Interval]
    measured: Run
    comparison: Comparison
    why: Explanation | None = None
    """Why the prediction differs, where that was asked."""

    @property
    def outcome(self) -> Outcome:
        """The verdict."""
        return self.comparison.outcome

    @property
    def metrics(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """Predicted, measured and relative error of each latency (``POINTS``), in seconds."""
        predicted, measured = self.predicted.summary(), self.measured.summary()
        metrics: dict[str, dict[str, dict[str, float | None]]] = {}
        for name in LATENCIES:
            for point in POINTS:
                ours, theirs = (figure(one, f"{name}.{point}") for one in (predicted, measured))
                error = ours / theirs - 1 if ours is not None and theirs else None
                entry = {"predicted": ours, "measured": theirs, "error": error}
                metrics.setdefault(name, {})[point] = entry
        return metrics

    def explained(
        self, recorded: RecordedRun, seed: int, on_simulation: Callable[[int], None]
    ) -> "RecordedVerification":
        """Return the verification with competing hypotheses on its errors (``explain_error``)."""
        facts = replace(measured_facts(recorded.run, recorded.trace), server=recorded.server)
        why = explain_error(self.scenario, facts, seed=seed, on_simulation=on_simulation)
        return replace(self, why=why)

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict and all figures, for JSON."""
        return {
            "outcome": self.outcome,
            "holds": self.outcome == "holds",
            "metrics": self.metrics,
            "intervals": {metric: asdict(one) for metric, one in self.intervals.items()},
            "comparison": self.comparison.as_dict(),
            "provenance": self.predicted.extra["provenance"],
            "preemptions": self.predicted.summary()["preemptions"],
            "policies": self.scenario.policies.as_dict(),
            **({"why": asdict(self.why)} if self.why else {}),
        }

    def save(self, folder: Path) -> None:
        """Write the runs, the verdict and the causes; raises ``NotSaved`` as ``Run.save`` does."""
        save_files(folder, self._files)

    def _files(self) -> Files:
        yield VERDICT, json.dumps(self.as_dict(), indent=1).encode()
        yield from within("predicted", self.predicted.files())
        yield from within("measured", self.measured.files())
        yield from self.why.files() if self.why else [(WHY, None)]


def verify_recorded(
    recorded: RecordedRun,
    scenario: Scenario,
    *,
    seed: int = 0,
    replications: int | None = None,
    limits: Mapping[str, float] = DEFAULT_LIMITS,
) -> RecordedVerification:
    """Simulate the requests of a recorded run and compare.

    ``replications`` are by default as many as ``BUDGET_S`` allows. Raises ``LoadTestError`` for a
    run with too few finished requests to be judged.
    """
    require_enough(recorded.trace)
    run = run_once(recorded.trace, scenario, seed=seed)
    if replications is None:
        affordable = BUDGET_S / max(1e-3, run.extra["simulation"]["wall_s"])
        replications = max(FEWEST_REPLICATIONS, min(MOST_REPLICATIONS, int(affordable)))
    if scenario.is_repeatable():
        replications = 1
    outside = is_outside(run)
    summaries = [
        replication(recorded.trace, scenario, number, seed=seed, extrapolate=outside).summary()
        for number in range(replications)
    ]
    summary = run.summary()
    intervals = {
        metric: _around(value, spread)
        for metric in common(METRICS, [summary])
        if (value := figure(summary, metric)) is not None
        and (spread := interval(summaries, metric)) is not None
    }
    run.scenario = {
        "trace": recorded.trace.source,
        "servers": scenario.profile.describe(),
        "policies": scenario.policies.as_dict(),
        "seed": seed,
    }
    comparison = compare(intervals, [recorded.run], limits, requests=run.requests)
    return RecordedVerification(scenario, run, intervals, recorded.run, comparison)


def require_enough(trace: Trace) -> None:
    """Raise ``LoadTestError`` where a recorded run has too few requests to be judged."""
    if len(trace) < MIN_REQUESTS:
        raise LoadTestError(
            f"--recorded: {trace.source} has {len(trace)} finished requests; at least "
            f"{MIN_REQUESTS} are needed, better 200"
        )


def _around(value: float, spread: Interval) -> Interval:
    """Return the interval of the best estimate: its own figure, the spread of the draws.

    A draw scales the step times, and no figure falls where they grow, so the figure at the middle
    draw is that of the best estimate: without the Monte-Carlo error of a median.
    """
    return Interval(value, min(value, spread.low), max(value, spread.high))
