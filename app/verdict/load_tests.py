"""Load tests of one load, repeated until they decide or the time for them is spent.

Each is kept on disk as soon as it has ended, and lies between two pulses of the machine.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from servetwin.app.calibration.calibrator import AT_ONCE, Calibrator, ReportProgress
from servetwin.app.verdict.claims import DEFAULT_LIMITS, Comparison
from servetwin.loadtest.run.client import run_load_test
from servetwin.policies.step_record import gaps_s
from servetwin.sim.records.run import SUMMARY, Files, NotSaved, Run, load_run, save_files
from servetwin.sim.step_times.machine_speed import MachineSpeed
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.errors import EndedEarly
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

DRIFT_LIMIT = DEFAULT_LIMITS["tpot_s.mean"]
"""A change of speed that makes a verdict impossible: the limit on TPOT."""

_BURST = tuple(Request(f"pulse-{number}", 0.0, 24, 24) for number in range(8))
_BURSTS = 3
_BASELINE_PULSES = 3
_RECENT_STEPS = 60
"""The steps of the bursts, about, by whose beats the speed is known."""


@dataclass(slots=True)
class Pulses:
    """Takes pulses of one endpoint: the speed of its machine before and after each load test.

    A pulse is a fixed burst of short requests, sent a few times; its figure is the median time per
    output token. A machine whose pulses differ from those at calibration time is no longer the
    machine that was calibrated, and a load test on it says nothing about the profile. The median of
    the pulses counts: what disturbs the machine for a moment only is in the spread of the load
    tests. No two pulses have the same prompts.
    """

    calibrator: Calibrator
    bursts: int = 0

    def take_s(self) -> float:
        """Return the median time per output token of the bursts, in seconds."""
        return median(self._burst_s() for _ in range(_BURSTS))

    def baseline_s(self) -> float:
        """Return the median of several pulses."""
        return median(self.take_s() for _ in range(_BASELINE_PULSES))

    def _burst_s(self) -> float:
        self.bursts += 1
        endpoint = self.calibrator.endpoint.salted("pulse", self.bursts)
        trace = self.calibrator.as_counted(Trace(_BURST, "pulse"))
        run = run_load_test(endpoint, trace, options=AT_ONCE)
        return float(run.requests["tpot_s"].median())


def drift_doubt(baseline_s: float, pulses_s: Sequence[float]) -> str | None:
    """Return why the load tests between the pulses say nothing about the profile, or None."""
    if not pulses_s or baseline_s <= 0:
        return None
    drift = median(pulses_s) / baseline_s - 1
    if abs(drift) <= DRIFT_LIMIT:
        return None
    return (
        f"the machine drifted: a fixed burst was {100 * drift:+.0f} % off its time at calibration "
        f"(limit {100 * DRIFT_LIMIT:.0f} %); end other programs, or use a machine of its own"
    )


_PULSES = "pulses_s"

Judge = Callable[[list[Run]], Comparison]
"""Compares a prediction with the load tests so far."""


@dataclass(frozen=True, slots=True)
class RepeatedTests:
    """Sends loads to the endpoint of ``calibrator``.

    At least ``repeats`` load tests of each run, and more until the verdict is decided or the next
    would end later than ``minutes`` after the first began.
    """

    calibrator: Calibrator
    pulses: Pulses
    repeats: int
    minutes: float
    report_progress: ReportProgress
    clock: Callable[[], float] = field(default=time.monotonic)

    def run(
        self,
        trace: Trace,
        label: str,
        name: str,
        judge: Judge,
        measured: list[Run],
        at: Path | None,
    ) -> Comparison:
        """Send ``trace`` until ``judge`` decides; append to ``measured``, return the judgement.

        ``name`` gives the prompts, other ones in each load test; ``at`` is the folder of all.
        """
        began_s, longest_s = self.clock(), 0.0
        pulse_s = self.pulses.take_s()
        while True:
            spent_s = self.clock() - began_s
            if len(measured) >= self.repeats:
                comparison = judge(measured)
                if (
                    comparison.outcome != "cannot tell"
                    or (comparison.doubts and not comparison.may_be_cleared)
                    or comparison.vague  # more load tests would not change that
                    or spent_s + longest_s > 60 * self.minutes
                ):
                    return comparison
            done = len(measured)
            self.report_progress(f"load test {done + 1} {label}")
            run = self.send(trace, name, done + 1, at)
            before_s, pulse_s = pulse_s, self.pulses.take_s()
            run.meta[_PULSES] = [before_s, pulse_s]
            measured.append(run)
            if at:
                keep(at / f"measured-{done + 1}", run.files, self.report_progress)
            longest_s = max(longest_s, self.clock() - began_s - spent_s)

    def speed(self, profile: Profile) -> float:
        """Return how fast the machine of ``profile`` computes now: 0.8 of what it did, say.

        By the beats while a few bursts ran. The time that the beats and other programs take is lost
        to the steps as well.
        """
        self.pulses.take_s()
        log = self.calibrator.server_log()
        steps = [] if log is None else [*log.steps[-_RECENT_STEPS:]]
        beats_s = MachineSpeed.of(steps).beats_s
        if not len(beats_s) or profile.beat_s is None:
            return 1.0
        away_s = float(beats_s.sum()) + sum(step.lost_s for step in steps)
        return profile.beat_s / float(beats_s.mean()) * max(0.1, 1 - away_s / sum(gaps_s(steps)))

    def send(self, trace: Trace, name: str, number: int, at: Path | None) -> Run:
        """Send the trace once, with prompts of its own.

        The prompts share prefixes as those of the trace do, but none with another load test, or a
        prefix cache would find them.
        """
        endpoint = self.calibrator.endpoint.salted(name, number)
        run = run_load_test(endpoint, self.calibrator.as_counted(trace))
        require_complete(run, at and at / "interrupted")
        return run


def drift_doubts(baseline_s: float, measured: Sequence[Run]) -> list[str]:
    """Return why the load tests say nothing about a profile, by the pulses beside them."""
    pulses_s = [pulse_s for run in measured for pulse_s in run.meta.get(_PULSES, ())]
    doubt = drift_doubt(baseline_s, pulses_s)
    return [doubt] if doubt else []


def keep(folder: Path, files: Callable[[], Files], report_progress: ReportProgress) -> None:
    """Write files at once, so that an interruption cannot lose them."""
    try:
        save_files(folder, files)
    except NotSaved as error:
        report_progress(str(error))


def kept_runs(at: Path) -> list[Run]:
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
