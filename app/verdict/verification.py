"""What a verification is asked for, and what it finds: a verdict on each load, and of all."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from servetwin.app.verdict.claims import DEFAULT_LIMITS, JUDGED, Outcome, worst
from servetwin.app.verdict.forecast import Forecast, LevelForecast
from servetwin.app.verdict.two_claims import TwoClaims
from servetwin.app.verdict.why.explanation import WHY, Explanation
from servetwin.sim.experiments.decision_check import DecisionCheck
from servetwin.sim.experiments.predict import REPLICATIONS
from servetwin.sim.records.run import Files, Run, save_files, within
from servetwin.workloads.trace import Trace

VERDICT = "verdict.json"
ROUNDS = 3
# Load tests at each load.
TESTS = 5
STEP_LOG_UTILISATIONS = (0.7,)
BLACK_BOX_UTILISATIONS = (0.5, 0.7)
# The relative errors that a prediction from a black-box calibration may have.
BLACK_BOX_LIMITS: Mapping[str, float] = JUDGED["black box"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How thoroughly to verify; ``utilisations`` are the shares of the predicted capacity offered.

    At each load ``repeats`` load tests run, and all of them are judged at once.
    ``replications`` simulations give an interval, ``rounds`` rounds of calibration the profile.
    ``why`` asks for the causes of the error; ``limits`` are the relative errors that the prediction
    may have, by metric.
    """

    utilisations: tuple[float, ...] = STEP_LOG_UTILISATIONS
    repeats: int = TESTS
    replications: int = REPLICATIONS
    seed: int = 0
    rounds: int = ROUNDS
    why: bool = False
    limits: Mapping[str, float] = field(default_factory=lambda: DEFAULT_LIMITS)


@dataclass(frozen=True, slots=True)
class Level:
    """One offered load: what was predicted, what was sent and measured, and the verdict.

    ``trace`` came at the mean rate of the load tests; ``why`` has the causes of the error of one of
    them, if asked for.
    """

    prediction: LevelForecast
    trace: Trace
    measured: list[Run]
    claims: TwoClaims
    why: Explanation | None = None

    def as_dict(self) -> dict[str, Any]:
        """The level's verdict and what it rests on, for JSON."""
        return {
            "requests": len(self.trace),
            "rate_per_s": self.trace.rate_per_s,
            "predicted_rate_per_s": self.prediction.trace.rate_per_s,
            "provenance": self.prediction.run.extra["provenance"],
            "comparison": self.claims.comparison.as_dict(),
            "refutable_step_time_change": self.claims.refutable,
            "claims": self.claims.as_dict(),
            **({"why": asdict(self.why)} if self.why else {}),
        }


@dataclass(frozen=True, slots=True)
class Verification:
    """All that a verification found out about one server."""

    forecast: Forecast
    levels: list[Level]
    decisions: DecisionCheck | None = None
    """Of all that the engine did since its start, calibration included; None without a step log."""

    @property
    def outcome(self) -> Outcome:
        """The verdict over all loads."""
        return worst(level.claims.comparison.outcome for level in self.levels)

    @property
    def identified(self) -> Mapping[str, Any]:
        """What a black-box calibration identified, and what not; empty where a log stated it."""
        settings: Mapping[str, Any] = self.forecast.profile.engine.get("identified", {})
        return settings

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
        for level in self.levels:
            for number, run in enumerate(level.measured, start=1):
                yield from within(f"{level.prediction.folder}/measured-{number}", run.files())
        yield VERDICT, json.dumps(self.as_dict(), indent=1).encode()

    def as_dict(self) -> dict[str, Any]:
        """The verdict and what it rests on, for JSON.

        The keys of a level also stand at the top where there is only one.
        """
        decisions, capacity_per_s = self.decisions, self.forecast.capacity_per_s
        return {
            "policy": self.forecast.config.name,
            "policies": self.forecast.config.as_dict(),
            "outcome": self.outcome,
            "holds": self.outcome == "holds",
            "capacity_per_s": capacity_per_s.value,
            "capacity_interval_per_s": [capacity_per_s.low, capacity_per_s.high],
            "calibration": self.identified,
            **(self.levels[0].as_dict() if len(self.levels) == 1 else {}),
            "levels": [
                {"utilisation": one.prediction.utilisation, **one.as_dict()} for one in self.levels
            ],
            "identical_steps": decisions and decisions.agreeing,
            "steps": decisions and decisions.steps,
        }
