"""Verify predictions on any endpoint: calibrate from outside, predict, load-test, judge.

Every load test is followed by one more round of calibration, so that a drifting machine is in the
prediction as well as in the measurement; no stamp of a load test is ever used to predict it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from app.twin.black_box.calibration import OutsideCalibrator, Tell
from app.twin.black_box.sender import LiveSender
from app.twin.black_box.session import Allowance
from app.twin.verification import VERDICT, require_complete, run_files
from loadtest.endpoint import Endpoint
from loadtest.report.comparison import METRICS, Comparison, compare
from loadtest.run.client import run_load_test
from sim.experiments.capacity import saturation_rate_per_s
from sim.experiments.predict import Prediction, predict
from sim.records.run import Run, save_files
from sim.records.run_folder import Files, within
from sim.step_times.profile import Profile
from workloads.errors import EndedEarly, LoadTestError
from workloads.trace import Trace
from workloads.transform import at_rate

LIMITS = {
    "output_throughput_tokens_per_s": 0.05,
    "tpot_s.mean": 0.08,
    "ttft_s.mean": 0.15,
}
"""Relative errors that a prediction from outside keeps."""


@dataclass(frozen=True, slots=True)
class OutsidePlan:
    """How thoroughly to verify; ``utilisations`` are shares of the predicted capacity."""

    utilisations: tuple[float, ...] = (0.5, 0.7)
    repeats: int = 2
    replications: int = 20
    seed: int = 0
    max_s: float = 300.0
    max_requests: int = 400


@dataclass(frozen=True, slots=True)
class Level:
    """One offered load: what was predicted, what was measured."""

    utilisation: float
    trace: Trace
    prediction: Prediction
    measured: list[Run]
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class OutsideVerification:
    """All that a verification from outside found out."""

    profile: Profile
    capacity_per_s: float
    levels: list[Level]

    @property
    def holds(self) -> bool:
        """Whether every prediction held."""
        return all(level.comparison.holds for level in self.levels)

    @property
    def not_identified(self) -> dict[str, str]:
        """The limits that stayed open, and why."""
        found: dict[str, str] = self.profile.engine["identified"]["not identified"]
        return found

    def save(self, folder: Path) -> None:
        """Profile, predictions, measurements and the verdict.

        Raises ``NotSaved`` as ``Run.save`` does.
        """
        for level in self.levels:
            level.prediction.run.scenario = {
                "trace": level.trace.source,
                "notes": list(level.trace.notes),
                "profile": str((folder / "profile.json").resolve()),
                "policies": self.profile.policies,
            }
        save_files(folder, self._files)

    def _files(self) -> Files:
        yield VERDICT, None  # An old one would judge the new runs.
        yield "profile.json", self.profile.as_json().encode()
        for level in self.levels:
            files = run_files(level.prediction.run, level.measured)
            yield from within(f"at-{100 * level.utilisation:.0f}", files)
        yield VERDICT, json.dumps(self.as_dict(), indent=1).encode()

    def as_dict(self) -> dict[str, Any]:
        """The verdict and what it rests on, for JSON."""
        return {
            "holds": self.holds,
            "capacity_per_s": self.capacity_per_s,
            "calibration": self.profile.engine["identified"],
            "policies": self.profile.policies,
            "levels": [
                {
                    "utilisation": level.utilisation,
                    "requests": len(level.trace),
                    "rate_per_s": level.trace.rate_per_s,
                    "comparison": level.comparison.as_dict(),
                }
                for level in self.levels
            ],
        }


def outside_calibrator(
    endpoint: Endpoint, sender: LiveSender, max_s: float, max_requests: int, seed: int, tell: Tell
) -> OutsideCalibrator:
    """A calibrator of a live endpoint, within these limits."""
    allowance = Allowance(max_s, max_requests)
    exact = endpoint.prompt == "ids"
    return OutsideCalibrator(sender, allowance, endpoint.max_model_len, exact, seed, tell)


def outside_profile(
    calibrator: OutsideCalibrator, endpoint: Endpoint, sender: LiveSender, name: str = "outside"
) -> Profile:
    """The profile of a live endpoint."""
    calibrator.findings.prompts = sender.prompts_note()
    host = httpx.URL(endpoint.base_url).netloc.decode()
    return calibrator.profile(name, host, endpoint.model, sender.round_trip_s())


def verify_outside(
    endpoint: Endpoint, trace: Trace, plan: OutsidePlan, tell: Tell, keep: Path | None = None
) -> OutsideVerification:
    """Predict ``trace`` at each share of capacity, and hold that to live tests.

    Raises ``LoadTestError`` for requests that the endpoint cannot take, ``EndedEarly`` when the
    endpoint fails on the way (what was recorded is in ``keep``).
    """
    if endpoint.max_model_len is not None:
        _require_fits(trace, endpoint.max_model_len)
    sender = LiveSender(endpoint)
    calibrator = outside_calibrator(
        endpoint, sender, plan.max_s, plan.max_requests, plan.seed, tell
    )
    calibrator.identify()
    _require_unbroken(calibrator)
    profile = outside_profile(calibrator, endpoint, sender)
    _require_fits(trace, profile.policy_config().max_model_len)
    capacity_per_s = saturation_rate_per_s(trace, profile.policy_config(), profile)
    tests: list[tuple[float, Trace, list[Run]]] = []
    for number, utilisation in enumerate(plan.utilisations):
        scaled = at_rate(trace, utilisation * capacity_per_s)
        tests.append((utilisation, scaled, []))
        for repeat in range(plan.repeats):
            tell(
                f"load test {repeat + 1} of {plan.repeats} at {100 * utilisation:.0f} % of "
                f"capacity: {len(scaled)} requests at {scaled.rate_per_s:.2f}/s, "
                f"{scaled.span_s:.0f} s"
            )
            salt = 1 + number * plan.repeats + repeat
            run = run_load_test(replace(endpoint, salt=salt), _as_asked(scaled, sender))
            require_complete(run, keep)
            tests[-1][2].append(run)
        calibrator.run_round("again, so that drift shows on both sides")
        _require_unbroken(calibrator)
    profile = outside_profile(calibrator, endpoint, sender)
    levels = [_judged(test, profile, plan) for test in tests]
    return OutsideVerification(profile, capacity_per_s, levels)


def _judged(test: tuple[float, Trace, list[Run]], profile: Profile, plan: OutsidePlan) -> Level:
    utilisation, trace, measured = test
    prediction = predict(
        trace, profile.policy_config(), profile, seed=plan.seed, replications=plan.replications
    )
    intervals = {m: i for m in METRICS if (i := prediction.interval(m)) is not None}
    return Level(utilisation, trace, prediction, measured, compare(intervals, measured, LIMITS))


def _as_asked(trace: Trace, sender: LiveSender) -> Trace:
    """The trace as it is sent: its prompts in words, where the endpoint takes text."""
    return trace.replaced([sender.in_words(request) for request in trace], "as the server counts")


def _require_unbroken(calibrator: OutsideCalibrator) -> None:
    if calibrator.broken:
        raise EndedEarly(f"calibration ended early: {calibrator.broken}")


def _require_fits(trace: Trace, longest: int) -> None:
    too_long = sum(request.total_tokens > longest for request in trace)
    if too_long:
        raise LoadTestError(
            f"{trace.source}: {too_long} of {len(trace)} requests are longer than the {longest} "
            "tokens that the endpoint takes; shorten them with --prompt-scale and --output-scale"
        )


def verdict_lines(found: OutsideVerification) -> list[str]:
    """The calibration, one table per load, the verdict."""
    from loadtest.report.comparison_report import LEGEND, comparison_table

    fit = next(iter(found.profile.layouts.values()))
    lines = [
        "",
        f"calibration from outside: {fit.steps} steps, held-out error "
        f"{100 * (fit.held_out_error or 0):.1f} %, drift between rounds {100 * fit.drift:.1f} %",
    ]
    for level in found.levels:
        lines += [
            "",
            f"at {100 * level.utilisation:.0f} % of {found.capacity_per_s:.2f}/s: "
            f"{len(level.trace)} requests at {level.trace.rate_per_s:.2f}/s, "
            f"{len(level.measured)} load tests",
            comparison_table(level.comparison),
            f"client: {', '.join(run.extra['delivered']['verdict'] for run in level.measured)}",
        ]
    return [*lines, "", *_verdict(found), "", LEGEND]


def _verdict(found: OutsideVerification) -> Sequence[str]:
    if found.holds:
        return ["VERDICT: the predictions hold"]
    failed = [
        f"{row.metric} at {100 * level.utilisation:.0f} %"
        for level in found.levels
        for row in level.comparison.metrics
        if row.holds is False
    ]
    open_ = [f"  {name}: {why}" for name, why in found.not_identified.items()]
    return [
        f"VERDICT: the prediction FAILED on {', '.join(failed)}",
        *(["what was not identified may be why:", *open_] if open_ else []),
    ]
