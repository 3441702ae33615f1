"""Verify predictions on one endpoint: calibrate, load-test, forecast, judge.

Calibration rounds and load tests take turns, so the machine's drift is in both. A forecast uses
the calibration rounds alone: bursts of made-up requests, never a stamp of a load test.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from app.twin.calibrator import Calibrator, ReportProgress
from loadtest.report.comparison import METRICS, Comparison, compare
from loadtest.run.client import run_load_test
from policies.config import PolicyConfig
from sim.experiments.capacity import saturation_rate_per_s
from sim.experiments.decision_check import DecisionCheck
from sim.experiments.predict import Prediction, predict
from sim.records.run import NotSaved, Run, machine_facts, save_files
from sim.records.run_folder import Files, within
from sim.step_times.profile import Profile
from workloads.errors import EndedEarly, LoadTestError
from workloads.trace import Trace
from workloads.transform import at_rate

VERDICT = "verdict.json"
AGAIN = "again, so that drift shows on both sides"


class Rounds(NamedTuple):
    """Calibration rounds before the first load test, between two at one load, after each load."""

    before: int
    between: int
    after: int


STEP_LOG_ROUNDS = Rounds(before=1, between=1, after=1)
BLACK_BOX_ROUNDS = Rounds(before=2, between=0, after=1)
STEP_LOG_UTILISATIONS = (0.7,)
BLACK_BOX_UTILISATIONS = (0.5, 0.7)


@dataclass(frozen=True, slots=True)
class Plan:
    """How thoroughly to verify; ``utilisations`` are the shares of the predicted capacity offered.

    ``repeats`` load tests run at each load, ``replications`` simulations give an interval.
    """

    utilisations: tuple[float, ...] = STEP_LOG_UTILISATIONS
    repeats: int = 2
    replications: int = 20
    seed: int = 0
    rounds: Rounds = STEP_LOG_ROUNDS


@dataclass(frozen=True, slots=True)
class Level:
    """One offered load: what was predicted, what was measured."""

    utilisation: float
    trace: Trace
    prediction: Prediction
    measured: list[Run]
    comparison: Comparison

    @property
    def provenance(self) -> dict[str, Any]:
        """What the prediction rests on (``sim.step_times.provenance.RunProvenance``)."""
        found: dict[str, Any] = self.prediction.run.extra["provenance"]
        return found

    @property
    def folder(self) -> str:
        """Name of the folder that holds its runs."""
        return f"at-{100 * self.utilisation:.0f}"

    def as_dict(self) -> dict[str, Any]:
        """The level's verdict and what it rests on, for JSON."""
        return {
            "requests": len(self.trace),
            "rate_per_s": self.trace.rate_per_s,
            "provenance": self.provenance,
            "comparison": self.comparison.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class Verification:
    """All that a verification found out about one server."""

    profile: Profile
    capacity_per_s: float
    levels: list[Level]
    decisions: DecisionCheck | None = None
    """Of all that the engine did since its start, calibration included; None without a step log."""
    seed: int = 0

    @property
    def config(self) -> PolicyConfig:
        """The server's policies, as stated or identified."""
        return self.profile.policy_config()

    @property
    def holds(self) -> bool:
        """Whether every prediction held."""
        return all(level.comparison.holds for level in self.levels)

    @property
    def identified(self) -> Mapping[str, Any]:
        """What a black-box calibration identified, and what not; empty where a log stated it."""
        found: Mapping[str, Any] = self.profile.engine.get("identified", {})
        return found

    @property
    def not_identified(self) -> Mapping[str, str]:
        """The settings that stayed open, and why."""
        found: Mapping[str, str] = self.identified.get("not identified", {})
        return found

    def save(self, folder: Path) -> None:
        """Write the profile, every prediction and measurement, and the verdict.

        Raises ``NotSaved`` as ``Run.save`` does.
        """
        for level in self.levels:
            predicted = level.prediction.run
            predicted.scenario = {
                "trace": level.trace.source,
                "notes": list(level.trace.notes),
                "profile": str((folder / "profile.json").resolve()),
                "policies": self.config.as_dict(),
                "seed": self.seed,
            }
            predicted.meta = machine_facts()
        save_files(folder, self._files)

    def _files(self) -> Files:
        yield VERDICT, None  # An old one would judge the new runs.
        yield "profile.json", self.profile.as_json().encode()
        for level in self.levels:
            runs = [("predicted", level.prediction.run)]
            runs += [(f"measured-{n}", run) for n, run in enumerate(level.measured, start=1)]
            for name, run in runs:
                yield from within(f"{level.folder}/{name}", run.files())
        yield VERDICT, json.dumps(self.as_dict(), indent=1).encode()

    def as_dict(self) -> dict[str, Any]:
        """The verdict and what it rests on, for JSON.

        The keys of a level also stand at the top where there is only one.
        """
        decisions = self.decisions
        return {
            "policy": self.config.name,
            "policies": self.config.as_dict(),
            "holds": self.holds,
            "capacity_per_s": self.capacity_per_s,
            "calibration": self.identified,
            **(self.levels[0].as_dict() if len(self.levels) == 1 else {}),
            "levels": [
                {"utilisation": level.utilisation, **level.as_dict()} for level in self.levels
            ],
            "identical_steps": decisions and decisions.agreeing,
            "steps": decisions and decisions.steps,
        }


@dataclass(frozen=True, slots=True)
class _LoadTests:
    """The load tests at one share of capacity; ``keep`` takes the records of one cut short."""

    calibrator: Calibrator
    plan: Plan
    report_progress: ReportProgress
    keep: Path | None

    def run(self, number: int, utilisation: float, trace: Trace) -> list[Run]:
        """Send ``trace`` ``plan.repeats`` times; calibrate between and after.

        Every load test has prompts of its own, with the same sharing, or a prefix cache would find
        those of the one before.
        """
        plan, endpoint, measured = self.plan, self.calibrator.endpoint, []
        for repeat in range(plan.repeats):
            self.report_progress(
                f"load test {repeat + 1} of {plan.repeats} at {100 * utilisation:.0f} % of "
                f"capacity: {len(trace)} requests at {trace.rate_per_s:.2f}/s, {trace.span_s:.0f} s"
            )
            salt = 1 + number * plan.repeats + repeat
            run = run_load_test(replace(endpoint, salt=salt), self.calibrator.as_counted(trace))
            require_complete(run, self.keep)
            measured.append(run)
            is_last = repeat + 1 == plan.repeats
            self._calibrate(plan.rounds.after if is_last else plan.rounds.between)
        return measured

    def _calibrate(self, rounds: int) -> None:
        for _ in range(rounds):
            self.calibrator.run_round(AGAIN)
        _require_running(self.calibrator)


def verify(
    calibrator: Calibrator,
    trace: Trace,
    plan: Plan,
    report_progress: ReportProgress,
    keep: Path | None = None,
) -> Verification:
    """Predict ``trace`` at each share of capacity, and hold the predictions to live load tests.

    Raises ``LoadTestError`` for requests that the endpoint cannot take, ``EngineError`` or
    ``EndedEarly`` when it fails on the way; a load test that was cut short is in ``keep`` then.
    """
    if calibrator.endpoint.max_model_len is not None:
        _require_fits(trace, calibrator.endpoint.max_model_len)
    calibrator.identify(plan.rounds.before)
    _require_running(calibrator)
    profile = calibrator.profile()
    _require_fits(trace, profile.policy_config().max_model_len)
    capacity_per_s = saturation_rate_per_s(trace, profile.policy_config(), profile)
    tests = _LoadTests(calibrator, plan, report_progress, keep)
    tested = []
    for number, utilisation in enumerate(plan.utilisations):
        load = at_rate(trace, utilisation * capacity_per_s)
        tested.append((utilisation, load, tests.run(number, utilisation, load)))
    profile = calibrator.profile()
    levels = []
    for utilisation, load, measured in tested:
        prediction = forecast(load, profile, plan)
        comparison = judge(prediction, measured, calibrator.error_limits)
        levels.append(Level(utilisation, load, prediction, measured, comparison))
    return Verification(profile, capacity_per_s, levels, calibrator.check_decisions(), plan.seed)


def forecast(trace: Trace, profile: Profile, plan: Plan) -> Prediction:
    """What the calibrated server does with ``trace``, with intervals."""
    return predict(
        trace,
        profile.policy_config(),
        profile,
        seed=plan.seed,
        replications=plan.replications,
    )


def judge(
    prediction: Prediction, measured: Sequence[Run], error_limits: Mapping[str, float]
) -> Comparison:
    """Hold a prediction to load tests of the same trace; a metric outside its limit fails."""
    intervals = {m: i for m in METRICS if (i := prediction.interval(m)) is not None}
    return compare(intervals, measured, error_limits)


def require_complete(run: Run, keep: Path | None) -> None:
    """Raise ``EndedEarly`` for a load test that was cut short, once its records are in ``keep``."""
    counts = run.summary()["requests"]
    if counts["finished"] == counts["total"]:
        return
    delivered = run.extra["delivered"]
    raise EndedEarly(
        f"the load test ended early: {counts['finished']} of {counts['total']} requests finished"
        + (f" ({delivered['stopped']})" if delivered["stopped"] else "")
        + (f"; failures {delivered['failures']}" if delivered["failures"] else "")
        + (_kept(run, keep) if keep else "")
    )


def _kept(run: Run, folder: Path) -> str:
    """Where its records are now, to end a sentence."""
    try:
        return f"; records in {run.save(folder)}"
    except NotSaved as error:
        return f"; {error}"


def _require_running(calibrator: Calibrator) -> None:
    if calibrator.stopped:
        raise EndedEarly(f"calibration ended early: {calibrator.stopped}")


def _require_fits(trace: Trace, longest: int) -> None:
    too_long = sum(request.total_tokens > longest for request in trace)
    if too_long:
        raise LoadTestError(
            f"{trace.source}: {too_long} of {len(trace)} requests are longer than the {longest} "
            "tokens that the endpoint takes; shorten them with --prompt-scale and --output-scale"
        )
