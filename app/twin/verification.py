"""Verify a profile on one endpoint: forecast, then load-test, then judge.

A forecast is made and written down before the first load test, with a profile that is frozen from
then on; a load test never changes what was predicted. Each load is tested until the measurements
decide, or the time for it is spent.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from app.twin.calibrator import Calibrator, ReportProgress
from app.twin.drift import Pulses, drift_doubt
from app.twin.forecast import FORECAST, Forecast, LevelForecast, make_forecast, read_forecast
from app.twin.power import REPLICATIONS as REPLICATIONS_OF_A_CHANGE
from app.twin.power import Refutable, refutable_change
from loadtest.report.comparison import Comparison, Outcome, compare, compare_steady, worst
from loadtest.run.client import run_load_test
from policies.config import PolicyConfig
from sim.experiments.decision_check import DecisionCheck
from sim.experiments.predict import REPLICATIONS, Interval
from sim.records.run import NotSaved, Run, load_run, save_files
from sim.records.run_folder import SUMMARY, Files, within
from sim.step_times.profile import Profile
from workloads.errors import EndedEarly, LoadTestError
from workloads.trace import Trace

VERDICT = "verdict.json"
JUDGED = "whole run"
"""What is judged: both sides begin empty and drain, so that is no error of the prediction, and the
whole run has more requests than its steady part."""
STEP_LOG_ROUNDS = 3
BLACK_BOX_ROUNDS = 3
STEP_LOG_UTILISATIONS = (0.7,)
BLACK_BOX_UTILISATIONS = (0.5, 0.7)
_PULSES = "pulses_s"


@dataclass(frozen=True, slots=True)
class Plan:
    """How thoroughly to verify; ``utilisations`` are the shares of the predicted capacity offered.

    At each load at least ``repeats`` load tests run, and more until the verdict is decided or the
    next would end later than ``minutes`` after the first began. ``replications`` simulations give
    an interval, ``rounds`` rounds of calibration the profile.
    """

    utilisations: tuple[float, ...] = STEP_LOG_UTILISATIONS
    repeats: int = 2
    minutes: float = 4.0
    replications: int = REPLICATIONS
    seed: int = 0
    rounds: int = STEP_LOG_ROUNDS


@dataclass(frozen=True, slots=True)
class Level:
    """One offered load: what was predicted, what was measured, and the verdict.

    ``refutable`` is the smallest change of step time that these load tests would have refuted.
    """

    prediction: LevelForecast
    measured: list[Run]
    comparison: Comparison
    refutable: Refutable

    @property
    def utilisation(self) -> float:
        """The share of the predicted capacity that was offered."""
        return self.prediction.utilisation

    @property
    def steady(self) -> Comparison | None:
        """The steady part of the prediction, not judged; None if it never settles."""
        forecast = self.prediction
        return compare_steady(forecast.steady, forecast.requests, self.measured)

    @property
    def trace(self) -> Trace:
        """The requests that were sent."""
        return self.prediction.trace

    @property
    def provenance(self) -> dict[str, Any]:
        """What the prediction rests on (``sim.step_times.provenance.RunProvenance``)."""
        return self.prediction.provenance

    def as_dict(self) -> dict[str, Any]:
        """The level's verdict and what it rests on, for JSON."""
        steady = self.steady
        return {
            "requests": len(self.trace),
            "rate_per_s": self.trace.rate_per_s,
            "provenance": self.provenance,
            "judged": JUDGED,
            "comparison": self.comparison.as_dict(),
            "steady": steady and asdict(steady),
            "refutable_step_time_change": asdict(self.refutable),
        }


@dataclass(frozen=True, slots=True)
class Verification:
    """All that a verification found out about one server."""

    forecast: Forecast
    levels: list[Level]
    decisions: DecisionCheck | None = None
    """Of all that the engine did since its start, calibration included; None without a step log."""

    @property
    def profile(self) -> Profile:
        """The frozen profile."""
        return self.forecast.profile

    @property
    def capacity_per_s(self) -> Interval:
        """The predicted capacity in requests per second."""
        return self.forecast.capacity_per_s

    @property
    def config(self) -> PolicyConfig:
        """The server's policies, as stated or identified."""
        return self.forecast.config

    @property
    def outcome(self) -> Outcome:
        """The verdict over all loads."""
        return worst(level.comparison.outcome for level in self.levels)

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
        """Write the forecast, every measurement, and the verdict.

        Raises ``NotSaved`` as ``Run.save`` does.
        """
        save_files(folder, lambda: self._files(folder))

    def _files(self, folder: Path) -> Files:
        yield VERDICT, None  # An old one would judge the new runs.
        yield from self.forecast.files(folder)
        for level in self.levels:
            for number, run in enumerate(level.measured, start=1):
                yield from within(f"{level.prediction.folder}/measured-{number}", run.files())
        yield VERDICT, json.dumps(self.as_dict(), indent=1).encode()

    def as_dict(self) -> dict[str, Any]:
        """The verdict and what it rests on, for JSON.

        The keys of a level also stand at the top where there is only one.
        """
        decisions = self.decisions
        return {
            "policy": self.config.name,
            "policies": self.config.as_dict(),
            "outcome": self.outcome,
            "holds": self.outcome == "holds",
            "capacity_per_s": self.capacity_per_s.value,
            "capacity_interval_per_s": [self.capacity_per_s.low, self.capacity_per_s.high],
            "calibration": self.identified,
            **(self.levels[0].as_dict() if len(self.levels) == 1 else {}),
            "levels": [
                {"utilisation": level.utilisation, **level.as_dict()} for level in self.levels
            ],
            "identical_steps": decisions and decisions.agreeing,
            "steps": decisions and decisions.steps,
        }


@dataclass(frozen=True, slots=True)
class Verifier:
    """Verifies one endpoint; ``out`` takes the folder of the verification, named by its policies.

    ``resume`` goes on with the forecast and the load tests that ``out`` has, ``profile`` judges a
    profile that exists instead of calibrating one.
    """

    calibrator: Calibrator
    trace: Trace
    plan: Plan
    report_progress: ReportProgress
    out: Path | None = None
    profile: Profile | None = None
    resume: bool = False
    clock: Callable[[], float] = field(default=time.monotonic)

    def run(self) -> Verification:
        """Forecast, test and judge every load.

        Raises ``LoadTestError`` for requests that the endpoint cannot take, ``EngineError`` or
        ``EndedEarly`` when it fails on the way, ``RunError`` for a forecast that was changed. What
        was done until then is in ``out``.
        """
        if self.calibrator.endpoint.max_model_len is not None:
            _require_fits(self.trace, self.calibrator.endpoint.max_model_len)
        pulses = Pulses(self.calibrator)
        forecast = self._kept_forecast() or self._new_forecast(pulses)
        levels = [self._test(level, forecast, pulses) for level in forecast.levels]
        return Verification(forecast, levels, self.calibrator.check_decisions())

    def _kept_forecast(self) -> Forecast | None:
        if not (self.resume and self.out):
            return None
        kept = [path.parent for path in sorted(self.out.glob(f"*/{FORECAST}"))]
        if self.calibrator.policy_name:
            kept = [folder for folder in kept if folder.name == self.calibrator.policy_name]
        if not kept:
            return None
        if len(kept) > 1:
            raise LoadTestError(
                f"--resume: {self.out} has {len(kept)} forecasts; give a folder with one"
            )
        self.report_progress(f"going on with the forecast in {kept[0]}")
        return read_forecast(kept[0], self.trace)

    def _new_forecast(self, pulses: Pulses) -> Forecast:
        if self.profile is None:
            self.calibrator.identify(self.plan.rounds, self.trace)
            _require_running(self.calibrator)
        profile = self.profile or self.calibrator.profile()
        _require_fits(self.trace, profile.policy_config().max_model_len)
        plan = self.plan
        forecast = make_forecast(
            self.trace,
            profile,
            plan.utilisations,
            replications=plan.replications,
            seed=plan.seed,
            pulse_s=pulses.baseline_s(),
        )
        if folder := self._folder(forecast):
            for stale in folder.glob("at-*/measured-*"):
                shutil.rmtree(stale)  # Load tests of an earlier forecast say nothing about this.
            self._keep(folder, lambda: forecast.files(folder))
        return forecast

    def _test(self, level: LevelForecast, forecast: Forecast, pulses: Pulses) -> Level:
        """Send the trace until the verdict is decided or the time is spent."""
        folder = self._folder(forecast)
        at = folder and folder / level.folder
        measured = _kept_runs(at) if self.resume and at else []
        number = forecast.levels.index(level)
        began_s, longest_s = self.clock(), 0.0
        pulse_s = pulses.take_s()
        while True:
            comparison = self._judge(level, measured, forecast.pulse_s)
            spent_s = self.clock() - began_s
            if len(measured) >= self.plan.repeats and (
                comparison.outcome != "cannot tell"
                or comparison.doubts
                or spent_s + longest_s > 60 * self.plan.minutes
            ):
                break
            run = self._load_test(level, 1 + 1000 * number + len(measured), len(measured), at)
            before_s, pulse_s = pulse_s, pulses.take_s()
            run.meta[_PULSES] = [before_s, pulse_s]
            measured.append(run)
            if at:
                self._keep(at / f"measured-{len(measured)}", run.files)
            longest_s = max(longest_s, self.clock() - began_s - spent_s)
        refutable = refutable_change(
            level,
            forecast.profile,
            comparison,
            self.calibrator.error_limits,
            seed=self.plan.seed,
            replications=min(REPLICATIONS_OF_A_CHANGE, self.plan.replications),
        )
        return Level(level, measured, comparison, refutable)

    def _load_test(self, level: LevelForecast, salt: int, done: int, at: Path | None) -> Run:
        """Send the trace once, with prompts of its own.

        The prompts share prefixes as those of the trace do, but none with another load test, or a
        prefix cache would find them.
        """
        trace = level.trace
        self.report_progress(
            f"load test {done + 1} at {100 * level.utilisation:.0f} % of capacity: "
            f"{len(trace)} requests at {trace.rate_per_s:.2f}/s, {trace.span_s:.0f} s"
        )
        endpoint = replace(self.calibrator.endpoint, salt=salt)
        run = run_load_test(endpoint, self.calibrator.as_counted(trace))
        require_complete(run, at and at / "interrupted")
        return run

    def _judge(self, level: LevelForecast, measured: list[Run], baseline_s: float) -> Comparison:
        pulses_s = [pulse_s for run in measured for pulse_s in run.meta.get(_PULSES, ())]
        doubt = drift_doubt(baseline_s, pulses_s)
        return compare(
            level.intervals,
            measured,
            self.calibrator.error_limits,
            requests=level.requests,
            doubts=[doubt] if doubt else [],
        )

    def _folder(self, forecast: Forecast) -> Path | None:
        return self.out and self.out / forecast.config.name

    def _keep(self, folder: Path, files: Callable[[], Files]) -> None:
        """Write files at once, so that an interruption cannot lose them."""
        try:
            save_files(folder, files)
        except NotSaved as error:
            self.report_progress(str(error))


def _kept_runs(at: Path) -> list[Run]:
    """Return the load tests that were done before an interruption, in order."""
    runs: list[Run] = []
    while (at / f"measured-{len(runs) + 1}" / SUMMARY).exists():
        runs.append(load_run(at / f"measured-{len(runs) + 1}"))
    return runs


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
