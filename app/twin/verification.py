"""Verify a profile on one endpoint: forecast, then load-test, then judge.

A forecast is made and written down before the first load test, with a profile that is frozen from
then on; a load test never changes what was predicted. Each load is tested until the measurements
decide, or the time for it is spent.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from servetwin.app.twin.calibrator import Calibrator, ReportProgress
from servetwin.app.twin.drift import Pulses
from servetwin.app.twin.forecast import (
    FORECAST,
    Forecast,
    LevelForecast,
    make_forecast,
    read_forecast,
)
from servetwin.app.twin.measured_facts import measured_facts
from servetwin.app.twin.power import REPLICATIONS as REPLICATIONS_OF_A_CHANGE
from servetwin.app.twin.power import Refutable, refutable_change
from servetwin.app.twin.repeated_tests import RepeatedTests, drift_doubts, keep, kept_runs
from servetwin.app.twin.saturation import (
    SATURATION,
    Saturation,
    compare_capacity,
    is_near_saturation,
    latency_limits,
    require_admitting_all,
    require_saturation,
)
from servetwin.app.twin.waterfall import WHY, Waterfall, explain_error
from servetwin.loadtest.report.comparison import (
    Comparison,
    Outcome,
    compare,
    compare_steady,
    judgeable,
    worst,
)
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.capacity import all_at_once
from servetwin.sim.experiments.decision_check import DecisionCheck
from servetwin.sim.experiments.predict import REPLICATIONS, Interval
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import LATENCIES
from servetwin.sim.records.run import Files, Run, save_files, within
from servetwin.sim.records.steady_part import WHOLE_RUN
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.errors import EndedEarly, LoadTestError
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate

VERDICT = "verdict.json"
JUDGED = WHOLE_RUN
"""What is judged: both sides begin empty and drain, so that is no error of the prediction, and the
whole run has more requests than its steady part."""
STEP_LOG_ROUNDS = 3
BLACK_BOX_ROUNDS = 3
STEP_LOG_UTILISATIONS = (0.7,)
BLACK_BOX_UTILISATIONS = (0.5, 0.7)


@dataclass(frozen=True, slots=True)
class Plan:
    """How thoroughly to verify; ``utilisations`` are the shares of the predicted capacity offered.

    At each load at least ``repeats`` load tests run, and more until the verdict is decided or the
    next would end later than ``minutes`` after the first began. ``replications`` simulations give
    an interval, ``rounds`` rounds of calibration the profile. ``why`` asks for the causes of the
    error.
    """

    utilisations: tuple[float, ...] = STEP_LOG_UTILISATIONS
    repeats: int = 2
    minutes: float = 4.0
    replications: int = REPLICATIONS
    seed: int = 0
    rounds: int = STEP_LOG_ROUNDS
    why: bool = False


@dataclass(frozen=True, slots=True)
class Level:
    """One offered load: what was predicted, what was sent and measured, and the verdict.

    Near saturation ``trace``, the requests that were sent, come at a share of the measured capacity
    instead of the predicted one. ``refutable`` is the smallest change of step time that these load
    tests would have refuted; ``why`` the causes of the error of one load test, if asked for.
    """

    prediction: LevelForecast
    trace: Trace
    measured: list[Run]
    comparison: Comparison
    refutable: Refutable
    why: Waterfall | None = None

    @property
    def utilisation(self) -> float:
        """The share of the predicted capacity that was offered."""
        return self.prediction.utilisation

    @property
    def steady(self) -> Comparison | None:
        """The steady part of the prediction, not judged; None if it never settles."""
        return compare_steady(self.prediction.steady, self.measured)

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
            "predicted_rate_per_s": self.prediction.trace.rate_per_s,
            "provenance": self.provenance,
            "judged": JUDGED,
            "comparison": self.comparison.as_dict(),
            "steady": steady and asdict(steady),
            "refutable_step_time_change": asdict(self.refutable),
            **({"why": self.why.as_dict()} if self.why else {}),
        }


@dataclass(frozen=True, slots=True)
class Verification:
    """All that a verification found out about one server."""

    forecast: Forecast
    levels: list[Level]
    decisions: DecisionCheck | None = None
    """Of all that the engine did since its start, calibration included; None without a step log."""
    saturation: Saturation | None = None
    """The capacity as measured; None if no load is near the predicted one."""

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
        """The verdict over the capacity, where it was measured, and all loads."""
        comparisons = [level.comparison for level in self.levels]
        if self.saturation:
            comparisons.append(self.saturation.comparison)
        return worst(comparison.outcome for comparison in comparisons)

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
            why: Files = level.why.files() if level.why else [(WHY, None)]
            yield from within(level.prediction.folder, why)
        tests = {level.prediction.folder: level.measured for level in self.levels}
        if self.saturation:
            tests[SATURATION] = self.saturation.measured
        for name, measured in tests.items():
            for number, run in enumerate(measured, start=1):
                yield from within(f"{name}/measured-{number}", run.files())
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
            "saturation": self.saturation and self.saturation.as_dict(),
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
        plan = self.plan
        tests = RepeatedTests(
            self.calibrator, pulses, plan.repeats, plan.minutes, self.report_progress, self.clock
        )
        saturation = self._saturate(forecast, tests)
        levels = [self._test(level, forecast, tests, saturation) for level in forecast.levels]
        return Verification(forecast, levels, self.calibrator.check_decisions(), saturation)

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
            for stale in [
                *folder.glob("at-*/measured-*"),
                *folder.glob(f"{SATURATION}/measured-*"),
            ]:
                shutil.rmtree(stale)  # Load tests of an earlier forecast say nothing about this.
            keep(folder, lambda: forecast.files(folder), self.report_progress)
        return forecast

    def _saturate(self, forecast: Forecast, tests: RepeatedTests) -> Saturation | None:
        """Measure the capacity of the engine, if a load is near the predicted one.

        It stays as it is once a load was sent at a share of it.
        """
        near = [level for level in forecast.levels if is_near_saturation(level.utilisation)]
        if not near:
            return None
        require_admitting_all(forecast.config)
        folder = self._folder(forecast)
        at = folder and folder / SATURATION
        measured = kept_runs(at) if self.resume and at else []

        def judge(measured: list[Run]) -> Comparison:
            doubts = drift_doubts(forecast.pulse_s, measured)
            return compare_capacity(forecast.capacity_per_s, measured, doubts)

        if self.resume and folder and any(kept_runs(folder / level.folder) for level in near):
            require_saturation(measured, folder)
            return Saturation(measured, judge(measured))
        load = all_at_once(self.trace)
        label = f"of the capacity: {len(load)} requests at once"
        comparison = tests.run(load, label, SATURATION, judge, measured, at)
        return Saturation(measured, comparison)

    def _test(
        self,
        level: LevelForecast,
        forecast: Forecast,
        tests: RepeatedTests,
        saturation: Saturation | None,
    ) -> Level:
        """Send the trace until the verdict is decided or the time is spent."""
        folder = self._folder(forecast)
        at = folder and folder / level.folder
        measured = kept_runs(at) if self.resume and at else []
        limits, sent = self.calibrator.error_limits, level.trace
        near = saturation is not None and is_near_saturation(level.utilisation)
        if saturation and near:
            limits = latency_limits(limits)
            sent = at_rate(self.trace, level.utilisation * saturation.measured_per_s)
        label = (
            f"at {100 * level.utilisation:.0f} % of {'the measured ' if near else ''}capacity: "
            f"{len(sent)} requests at {sent.rate_per_s:.2f}/s, {sent.span_s:.0f} s"
        )

        def judge(measured: list[Run]) -> Comparison:
            doubts = drift_doubts(forecast.pulse_s, measured)
            return compare(
                level.intervals, measured, limits, requests=level.requests, doubts=doubts
            )

        comparison = tests.run(sent, label, level.folder, judge, measured, at)
        refutable = refutable_change(
            level,
            forecast.profile,
            comparison,
            limits,
            equal_utilisation=near,
            seed=self.plan.seed,
            replications=min(REPLICATIONS_OF_A_CHANGE, self.plan.replications),
        )
        why = self._explain(level, sent, measured, forecast) if self.plan.why else None
        return Level(level, sent, measured, comparison, refutable, why)

    def _explain(
        self, level: LevelForecast, sent: Trace, measured: list[Run], forecast: Forecast
    ) -> Waterfall:
        """Return the causes of the error of the first load test whose client kept up."""
        run = judgeable(measured)[0]
        self.report_progress(f"explaining the error at {100 * level.utilisation:.0f} %")
        means = {
            name: level.intervals[f"{name}.mean"].value
            for name in LATENCIES
            if f"{name}.mean" in level.intervals
        }
        facts = measured_facts(run, sent, self.calibrator.server_log())
        scenario = Scenario(forecast.config, forecast.profile)
        return explain_error(means, scenario, facts, seed=self.plan.seed)

    def _folder(self, forecast: Forecast) -> Path | None:
        return self.out and self.out / forecast.config.name


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
