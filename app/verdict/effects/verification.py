"""Verify the effect of a technique: predict it, run the engine without and with it, and compare.

The engine without the technique is calibrated, and the effect predicted; then engines without it
and with it get the same loads in turn, A B B A, so that a machine that drifts slows both sides. An
effect is a ratio, with / without: what lasts for a pair of load tests cancels.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from servetwin.app.calibration.calibrator import ReportProgress
from servetwin.app.calibration.step_log import StepLogCalibrator
from servetwin.app.serving.engines import LiveEngine
from servetwin.app.verdict.claims import MetricComparison, Outcome, compare_metric, verdict
from servetwin.app.verdict.effects import prediction
from servetwin.app.verdict.effects.sides import (
    METRICS,
    EffectLoads,
    Figures,
    Side,
    Sides,
    figures_of,
    ratios,
)
from servetwin.app.verdict.verifier import require_complete
from servetwin.engine.core.step_log import read_step_log
from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.run.client import run_load_test
from servetwin.policies.step_record import StepRecord
from servetwin.sim.records.run import Files, Run, machine_facts, save_files
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.trace import Trace

EFFECT = "effect.json"
# The relative error that a predicted ratio may have.
LIMIT = 0.10
# A change below this counts as none.
DEAD_BAND = 0.02
PAIRS = 5


@dataclass(frozen=True, slots=True)
class EffectPlan:
    """How thoroughly to verify: ``pairs`` load tests of both sides, and one look at them.

    ``rounds`` rounds of calibration give the profile, ``replications`` simulations an interval.
    """

    pairs: int = PAIRS
    rounds: int = 4
    replications: int = prediction.REPLICATIONS
    seed: int = 0


@dataclass(frozen=True, slots=True)
class MetricEffect:
    """One metric: the ratio with / without, predicted and measured, and the verdict."""

    comparison: MetricComparison

    @property
    def measured_interval(self) -> tuple[float, float] | None:
        """The confidence interval of the measured ratio; None with one pair."""
        row = self.comparison
        if row.predicted is None or row.error_low is None or row.error_high is None:
            return None
        return row.predicted.value / (1 + row.error_high), row.predicted.value / (1 + row.error_low)

    @property
    def sign_right(self) -> bool | None:
        """Whether both ratios are on the same side of 1, or both as good as 1; None: not known.

        A sign is wrong where the measured interval is on the other side, or as good as 1.
        """
        row, interval = self.comparison, self.measured_interval
        if row.predicted is None or row.measured is None or interval is None:
            return None
        predicted, measured = _direction(row.predicted.value), _direction(row.measured)
        if predicted == measured:
            return True
        known = {_direction(bound) for bound in interval}
        return False if len(known) == 1 and predicted not in known else None

    @property
    def is_inside(self) -> bool | None:
        """Whether both intervals, in whole per cent as printed, overlap; None: not known."""
        row, interval = self.comparison, self.measured_interval
        if row.predicted is None or interval is None:
            return None
        low, high, least, most = (
            round(ratio, 2) for ratio in (row.predicted.low, row.predicted.high, *interval)
        )
        return low <= most and least <= high

    def as_dict(self) -> dict[str, Any]:
        """Return the effect for JSON."""
        more = {"sign_right": self.sign_right, "inside": self.is_inside}
        return {**asdict(self.comparison), "measured_interval": self.measured_interval, **more}


def _direction(ratio: float) -> int:
    return 0 if abs(ratio - 1) < DEAD_BAND else 1 if ratio > 1 else -1


@dataclass(frozen=True, slots=True)
class EffectVerification:
    """All that was found out about one technique on one engine."""

    sides: Sides
    profile: Profile
    predicted: prediction.PredictedEffect
    without: list[Figures]
    with_it: list[Figures]

    @property
    def effects(self) -> list[MetricEffect]:
        """The metrics that either side has."""
        measured = [ratios(a, b) for a, b in zip(self.without, self.with_it, strict=True)]
        effects = []
        for metric in METRICS:
            predicted = self.predicted.ratios.get(metric)
            values = [pair.get(metric) for pair in measured]
            if predicted or any(values):
                effects.append(MetricEffect(compare_metric(metric, predicted, values, [], LIMIT)))
        return effects

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of all metrics."""
        return verdict([effect.comparison.outcome for effect in self.effects], ())

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict and what it rests on, for JSON."""
        return {
            "technique": self.sides.name,
            "formula": self.sides.technique.formula,
            "outcome": self.outcome,
            "holds": self.outcome == "holds",
            "machine": machine_facts(),
            "engine": self.profile.engine,
            "policies": {
                "without": self.sides.without.options.policies.as_dict(),
                "with": self.sides.with_it.options.policies.as_dict(),
            },
            "acceptance": repr(self.sides.with_it.setup.acceptance),
            "efficiency": self.predicted.efficiency and asdict(self.predicted.efficiency),
            "pairs": len(self.without),
            "effects": [effect.as_dict() for effect in self.effects],
            "measured": {"without": self.without, "with": self.with_it},
        }

    def save(self, folder: Path) -> None:
        """Write the profile and the verdict; raises ``NotSaved`` as ``Run.save`` does."""
        save_files(folder, self._files)

    def _files(self) -> Files:
        yield "profile.json", self.profile.as_json().encode()
        yield EFFECT, (json.dumps(self.as_dict(), indent=1) + "\n").encode()


# Starts the engine of a side, for as long as a block lasts.
Start = Callable[[Side], AbstractContextManager[LiveEngine]]


@dataclass(frozen=True, slots=True)
class EffectVerifier:
    """Verifies a technique on engines that ``start`` starts: one for each load test.

    A process keeps its luck for life (its memory pages, its core); a new one for each pair makes
    that a part of the noise.
    """

    sides: Sides
    start: Start
    loads: EffectLoads
    plan: EffectPlan
    report_progress: ReportProgress
    profile: Profile | None = None
    """Of the engine without the technique; None: calibrate it."""

    def run(self) -> EffectVerification:
        """Calibrate, predict, measure and compare.

        Raises ``EngineError`` or ``EndedEarly`` when an engine fails on the way.
        """
        profile = self.profile or self._calibrated()
        sides = self.sides
        if prediction.needs_acceptance(sides):
            self.report_progress(f"{sides.name}: measuring the acceptance of drafts")
            sides = prediction.with_measured_acceptance(sides, self._steps_with_it())
        self.report_progress(f"{sides.name}: predicting")
        plan = self.plan
        predicted = prediction.predict_effect(
            sides, profile, self.loads, seed=plan.seed, replications=plan.replications
        )
        verification = EffectVerification(sides, profile, predicted, [], [])
        for pair in range(1, plan.pairs + 1):
            self._measure_pair(verification, pair)
        return verification

    def _calibrated(self) -> Profile:
        with self.start(self.sides.without) as live:
            calibrator = StepLogCalibrator(live, self.plan.seed, self.report_progress)
            calibrator.identify(self.plan.rounds)
            return calibrator.profile(f"without {self.sides.technique.name}")

    def _steps_with_it(self) -> list[StepRecord]:
        """Return the steps of a run with the technique that is not judged."""
        with self.start(self.sides.with_it) as live:
            _send(live, self.loads.saturated, "before")
            return read_step_log(live.step_log)[1]

    def _measure_pair(self, verification: EffectVerification, pair: int) -> None:
        self.report_progress(f"{self.sides.name}: pair {pair} of load tests, without and with")
        without = self.sides.without, verification.without
        with_it = self.sides.with_it, verification.with_it
        for side, figures in (without, with_it) if pair % 2 else (with_it, without):
            with self.start(side) as live:
                figures.append(measured(live, self.loads))


def measured(live: LiveEngine, loads: EffectLoads) -> Figures:
    """Send both loads to an engine, after some requests that warm it up, and return the figures."""
    _send(live, loads.alone, "warm-up")
    alone = _send(live, loads.alone, "alone")
    header, before = read_step_log(live.step_log)
    saturated = _send(live, loads.saturated, "saturated")
    steps = read_step_log(live.step_log)[1][len(before) :]
    runner: Mapping[str, Any] = header["runner"]
    kv_tokens = header["kv_tokens"]
    held = kv_tokens - min((step.free_tokens for step in steps), default=kv_tokens)
    return figures_of(alone, saturated, memory_bytes(runner, held))


def memory_bytes(runner: Mapping[str, Any], held_tokens: int) -> float:
    """Return the bytes of weights and of ``held_tokens`` of KV, of all devices and a draft model.

    ``runner`` is what the engine's step log says of it.
    """
    weights, kv = (
        runner.get(f"{what}_bytes", 0) + runner.get(f"draft_{what}_bytes", 0)
        for what in ("weight", "kv")
    )
    per_token = kv / (runner.get("kv_tokens") or 1)
    return float(runner.get("tensor_parallel", 1) * (weights + held_tokens * per_token))


def _send(live: LiveEngine, load: Trace, name: str) -> Run:
    run = run_load_test(probe(live.url).salted(name), load)
    require_complete(run, None)
    return run
