"""What a verification is asked for, and what it finds: a verdict on each load, and of all."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from servetwin.app.verdict.capacity import SATURATION, Saturation
from servetwin.app.verdict.claims import DEFAULT_LIMITS, Comparison, Outcome, compare_steady, worst
from servetwin.app.verdict.forecast import Forecast, LevelForecast
from servetwin.app.verdict.power import Refutable
from servetwin.app.verdict.two_claims import TwoClaims
from servetwin.app.verdict.why import WHY, Waterfall
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.decision_check import DecisionCheck
from servetwin.sim.experiments.predict import REPLICATIONS, Interval
from servetwin.sim.records.run import Files, Run, save_files, within
from servetwin.sim.records.steady_part import WHOLE_RUN
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.trace import Trace

VERDICT = "verdict.json"
JUDGED = WHOLE_RUN
"""What is judged: both sides begin empty and drain, so that is no error of the prediction, and the
whole run has more requests than its steady part."""
STEP_LOG_ROUNDS = 3
BLACK_BOX_ROUNDS = 3
TESTS = 5
"""Load tests of an engine that logs its beat, at each load."""
BLACK_BOX_TESTS = 2
"""Load tests of another endpoint at each load, at least."""
STEP_LOG_UTILISATIONS = (0.7,)
BLACK_BOX_UTILISATIONS = (0.5, 0.7)
BLACK_BOX_LIMITS: Mapping[str, float] = {
    "output_throughput_tokens_per_s": 0.05,
    "tpot_s.mean": 0.08,
    "ttft_s.mean": 0.15,
}
"""The relative errors that a prediction from a black-box calibration may have."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How thoroughly to verify; ``utilisations`` are the shares of the predicted capacity offered.

    At each load ``repeats`` load tests run of an engine that logs its beat; of another endpoint at
    least so many, and more until the verdict is decided or the next would end later than
    ``minutes`` after the first began. ``replications`` simulations give
    an interval, ``rounds`` rounds of calibration the profile. ``why`` asks for the causes of the
    error; ``limits`` are the relative errors that the prediction may have, by metric.
    """

    utilisations: tuple[float, ...] = STEP_LOG_UTILISATIONS
    repeats: int = TESTS
    minutes: float = 4.0
    replications: int = REPLICATIONS
    seed: int = 0
    rounds: int = STEP_LOG_ROUNDS
    why: bool = False
    limits: Mapping[str, float] = field(default_factory=lambda: DEFAULT_LIMITS)


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
    claims: TwoClaims | None = None
    """Where the engine logs its reference beat; ``comparison`` is theirs then."""

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
            **({"claims": self.claims.as_dict()} if self.claims else {}),
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
        settings: Mapping[str, Any] = self.profile.engine.get("identified", {})
        return settings

    @property
    def not_identified(self) -> Mapping[str, str]:
        """The settings that stayed open, and why."""
        reasons: Mapping[str, str] = self.identified.get("not identified", {})
        return reasons

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
