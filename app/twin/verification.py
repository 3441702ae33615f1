"""Verify a prediction on one engine: calibrate, predict, load-test, repeat, judge.

Calibration rounds and load tests take turns (calibrate, test, calibrate, test, calibrate), so the
machine's drift is in both. The prediction uses the calibration rounds alone: bursts of made-up
requests, never a stamp of the load test.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.twin.calibration import Calibrator, Observed, fit_api, pooled
from app.twin.engines import LiveEngine
from engine.core.step_log import read_arrivals, read_step_log
from loadtest.endpoint import probe
from loadtest.report.comparison import METRICS, Comparison, compare
from loadtest.run.client import run_load_test
from policies.config import PolicyConfig
from policies.registry import build_scheduler
from sim.experiments.capacity import saturation_rate_per_s
from sim.experiments.decision_check import DecisionCheck, check_decisions
from sim.experiments.predict import Prediction, predict
from sim.records.run import NotSaved, Run, machine_facts, save_files
from sim.records.run_folder import Files, within
from sim.step_times.fit import fit_step_time
from sim.step_times.profile import Profile, StepTimeFit
from workloads.errors import EndedEarly
from workloads.trace import Trace
from workloads.transform import at_rate

VERDICT = "verdict.json"
Tell = Callable[[str], None]
"""Takes one line on what is being done."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How thoroughly to verify. ``utilisation`` is the share of the predicted capacity offered."""

    utilisation: float = 0.7
    repeats: int = 2
    replications: int = 20
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Verification:
    """All that a verification found out."""

    config: PolicyConfig
    profile: Profile
    trace: Trace
    capacity_per_s: float
    prediction: Prediction
    measured: list[Run]
    comparison: Comparison
    decision_check: DecisionCheck
    """Of all that the engine did since its start, calibration included."""
    seed: int = 0

    @property
    def provenance(self) -> dict[str, Any]:
        """What the prediction rests on (``sim.step_times.provenance.RunProvenance``)."""
        found: dict[str, Any] = self.prediction.run.extra["provenance"]
        return found

    def save(self, folder: Path) -> None:
        """The prediction, every measurement, the profile and the verdict.

        Raises ``NotSaved`` as ``Run.save`` does.
        """
        self.prediction.run.scenario = {
            "trace": self.trace.source,
            "notes": list(self.trace.notes),
            "profile": str((folder / "profile.json").resolve()),
            "policies": self.config.as_dict(),
            "seed": self.seed,
        }
        self.prediction.run.meta = machine_facts()
        save_files(folder, self._files)

    def _files(self) -> Files:
        yield VERDICT, None  # An old one would judge the new runs.
        yield from run_files(self.prediction.run, self.measured)
        yield "profile.json", self.profile.as_json().encode()
        yield VERDICT, json.dumps(self.as_dict(), indent=1).encode()

    def as_dict(self) -> dict[str, Any]:
        """The verdict and what it rests on, for JSON."""
        return {
            "policy": self.config.name,
            "policies": self.config.as_dict(),
            "requests": len(self.trace),
            "rate_per_s": self.trace.rate_per_s,
            "capacity_per_s": self.capacity_per_s,
            "provenance": self.provenance,
            "comparison": self.comparison.as_dict(),
            "identical_steps": self.decision_check.agreeing,
            "steps": self.decision_check.steps,
        }


def verify(
    engine: LiveEngine, trace: Trace, plan: Plan, tell: Tell, keep: Path | None = None
) -> Verification:
    """Predict ``trace``, scaled to ``plan.utilisation`` of capacity, and hold it to live tests.

    Raises ``EngineError`` or ``LoadTestError`` when the engine fails on the way; a load test that
    was cut short is written to ``keep`` first.
    """
    header = engine.header()
    config = resolved_policies(header)
    endpoint = probe(engine.url)
    calibrator = Calibrator(endpoint, engine.step_log, config, header["clock_zero_s"], plan.seed)
    tell("calibrating: bursts over prompt lengths, batch sizes and contexts")
    rounds = [calibrator.run_round()]
    capacity_per_s = saturation_rate_per_s(trace, config, make_profile(header, rounds))
    scaled = at_rate(trace, plan.utilisation * capacity_per_s)
    measured = []
    for repeat in range(plan.repeats):
        tell(
            f"load test {repeat + 1} of {plan.repeats}: {len(scaled)} requests at "
            f"{scaled.rate_per_s:.2f}/s, {100 * plan.utilisation:.0f} % of capacity, "
            f"{scaled.span_s:.0f} s"
        )
        # other prompts of the same sharing, or the repeat would find the first one's in the cache
        run = run_load_test(replace(endpoint, salt=repeat + 1), scaled)
        measured.append(run)
        require_complete(run, keep)
        tell("calibrating again, so that drift shows on both sides")
        rounds.append(calibrator.run_round())
    profile = make_profile(header, rounds)
    prediction = predict(scaled, config, profile, seed=plan.seed, replications=plan.replications)
    intervals = {m: i for m in METRICS if (i := prediction.interval(m)) is not None}
    comparison = compare(intervals, measured)
    log = read_step_log(engine.step_log)[1]
    decision_check = check_decisions(read_arrivals(engine.step_log), config, log)
    return Verification(
        config,
        profile,
        scaled,
        capacity_per_s,
        prediction,
        measured,
        comparison,
        decision_check,
        plan.seed,
    )


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


def run_files(predicted: Run, measured: Sequence[Run]) -> Files:
    """Of a prediction and its load tests, each run in a folder of its own."""
    yield from within("predicted", predicted.files())
    for number, run in enumerate(measured, start=1):
        yield from within(f"measured-{number}", run.files())


def make_profile(
    header: dict[str, Any], rounds: Sequence[Observed], name: str = "calibrated"
) -> Profile:
    """The profile that calibration rounds give for the engine of a step log's header."""
    observed = pooled(list(rounds))
    config = resolved_policies(header)
    layout = build_scheduler(config).memory.layout
    return Profile(
        name=name,
        origin="measured",
        machine=machine_facts(),
        engine=header["runner"],
        policies=config.as_dict(),
        layouts={layout: StepTimeFit.of(fit_step_time(observed.samples))},
        api=fit_api(observed),
    )


def resolved_policies(header: dict[str, Any]) -> PolicyConfig:
    """The engine's policies, with the KV memory that it really has."""
    return PolicyConfig(**{**header["policies"], "kv_tokens": header["kv_tokens"]})


def merge_profiles(profiles: Sequence[Profile], name: str) -> Profile:
    """One profile with the layouts of several of the same engine; the first one's API latency."""
    layouts = {layout: fit for profile in profiles for layout, fit in profile.layouts.items()}
    return profiles[0].model_copy(update={"name": name, "layouts": layouts})
