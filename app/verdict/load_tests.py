"""Load tests of one load: each paced by what the machine completes now, and kept as it ends."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from servetwin.app.calibration.calibrator import AT_ONCE, Calibrator, ReportProgress
from servetwin.loadtest.run.client import run_load_test
from servetwin.policies.step_record import gaps_s
from servetwin.sim.experiments.capacity import all_at_once
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import mean_latencies
from servetwin.sim.records.run import Files, NotSaved, Run, save_files
from servetwin.sim.step_times.machine_speed import MachineSpeed
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.errors import EndedEarly
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import limit

_BURST = Trace(tuple(Request(f"pace-{number}", 0.0, 24, 24) for number in range(8)), "pace")
_BURSTS = 3
_RECENT_STEPS = 60
"""The steps of the bursts, about, by whose beats the speed is known."""
_AT_ONCE = 64
"""Requests of the trace that fill a server for a moment, where there is no beat."""


@dataclass(slots=True)
class LoadSender:
    """Sends loads to the endpoint of ``calibrator``, no two with the same prompts."""

    calibrator: Calibrator
    sent: int = 0

    def speed(self, profile: Profile, trace: Trace) -> float:
        """Return how fast the machine of ``profile`` computes now: 0.8 of what it did, say.

        By its beats while a few bursts run, where there are any; the time that beats and other
        programs take is lost to the steps as well. Else by how long requests of ``trace`` take that
        come all at once, against what the profile says of them.
        """
        if profile.beat_s is not None:
            for _ in range(_BURSTS):
                self._send_at_once(_BURST)
            log = self.calibrator.server_log()
            steps = [] if log is None else [*log.steps[-_RECENT_STEPS:]]
            beats_s = MachineSpeed.of(steps).beats_s
            if len(beats_s):
                away_s = float(beats_s.sum()) + sum(step.lost_s for step in steps)
                busy = max(0.1, 1 - away_s / sum(gaps_s(steps)))
                return profile.beat_s / float(beats_s.mean()) * busy
        load = all_at_once(limit(trace, _AT_ONCE))
        predicted = run_once(load, Scenario(profile.policy_config(), profile))
        took_s = mean_latencies(self._send_at_once(load).requests)["e2e_s"]
        return mean_latencies(predicted.requests)["e2e_s"] / took_s if took_s > 0 else 1.0

    def _send_at_once(self, burst: Trace) -> Run:
        self.sent += 1
        endpoint = self.calibrator.endpoint.salted("pace", self.sent)
        return run_load_test(endpoint, self.calibrator.as_counted(burst), options=AT_ONCE)

    def send(self, trace: Trace, name: str, number: int, at: Path | None) -> Run:
        """Send the trace once, with prompts of its own.

        The prompts share prefixes as those of the trace do, but none with another load test, or a
        prefix cache would find them.
        """
        endpoint = self.calibrator.endpoint.salted(name, number)
        run = run_load_test(endpoint, self.calibrator.as_counted(trace))
        require_complete(run, at and at / "interrupted")
        return run


def keep(folder: Path, files: Callable[[], Files], report_progress: ReportProgress) -> None:
    """Write files at once, so that an interruption cannot lose them."""
    try:
        save_files(folder, files)
    except NotSaved as error:
        report_progress(str(error))


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
