"""Verify a profile on one endpoint: forecast, then load-test, then judge.

A forecast is made and written down before the first load test, with a profile that is frozen from
then on; a load test never changes what was predicted. The plan is fixed in advance: so many load
tests of each load, paced by what the machine completes then, and one look at all of them by two
claims (``app.verdict.two_claims``).

Load tests of one load: each paced by what the machine completes now, and kept as it ends.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from servetwin.app.calibration.calibrator import AT_ONCE, Calibrator, ReportProgress
from servetwin.app.verdict.claims import judgeable
from servetwin.app.verdict.forecast import PROFILE, Forecast, LevelForecast, make_forecast
from servetwin.app.verdict.measured_facts import measured_facts
from servetwin.app.verdict.two_claims import TwoClaims
from servetwin.app.verdict.verification import Level, Plan, Verification
from servetwin.app.verdict.why.explanation import Explanation, explain_error
from servetwin.loadtest.http.exchange import ORPHANED
from servetwin.loadtest.run.client import run_load_test
from servetwin.policies.step_record import gaps_s
from servetwin.sim.experiments.capacity import all_at_once
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import mean_latencies
from servetwin.sim.records.run import Files, NotSaved, Run, save_files
from servetwin.sim.step_times.machine_speed import MachineSpeed
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.errors import EndedEarly, LoadTestError
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate, clip_context, limit

_BURST = Trace(tuple(Request(f"pace-{number}", 0.0, 24, 24) for number in range(8)), "pace")
_BURSTS = 3
# The steps of the bursts, about, by whose beats the speed is known.
_RECENT_STEPS = 60
# Requests of the trace that fill a server for a moment, where there is no beat.
_AT_ONCE = 64


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
        require_complete(run, at and at / "interrupted", endpoint.max_model_len)
        return run


def keep(folder: Path, files: Callable[[], Files], report_progress: ReportProgress) -> None:
    """Write files at once, so that an interruption cannot lose them."""
    try:
        save_files(folder, files)
    except NotSaved as error:
        report_progress(str(error))


def require_complete(run: Run, keep: Path | None, longest: int | None = None) -> None:
    """Raise ``EndedEarly`` for a load test that was cut short, once its records are in ``keep``.

    On lanes a request longer than ``longest`` is refused, and what follows in its session not sent.
    """
    counts, missed = run.summary()["requests"], run.requests[run.requests["status"] != "finished"]
    if "lanes" in run.scenario and longest is not None:
        fits = missed["prompt_tokens"] + missed["asked_output_tokens"] <= longest
        missed = missed[fits & (missed["error"] != ORPHANED)]
    if missed.empty:
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


@dataclass(frozen=True, slots=True)
class Verifier:
    """Verifies one endpoint; ``out`` takes the folder of the verification, named by its policies.

    ``profile`` is one to judge that exists, instead of calibrating one.
    """

    calibrator: Calibrator
    trace: Trace
    plan: Plan
    report_progress: ReportProgress
    out: Path | None = None
    profile: Profile | None = None

    def run(self) -> Verification:
        """Forecast, test and judge every load.

        Raises ``LoadTestError`` for requests that the endpoint cannot take, ``EngineError`` or
        ``EndedEarly`` when it fails on the way. What was done until then is in ``out``.
        """
        if self.calibrator.endpoint.max_model_len is not None:
            _require_fits(self.trace, self.calibrator.endpoint.max_model_len)
        try:
            forecast = self._forecast()
            sender = LoadSender(self.calibrator)
            levels = [self._test(level, forecast, sender) for level in forecast.levels]
            return Verification(forecast, levels, self.calibrator.check_decisions())
        except KeyboardInterrupt:
            raise EndedEarly(f"interrupted{self._kept()}") from None

    def _kept(self) -> str:
        """Return where what was done until now is, to end a sentence; nothing without a place."""
        return f"; what was done is in {self.out}" if self.out and any(self.out.glob("*/*")) else ""

    def _forecast(self) -> Forecast:
        plan, calibrator = self.plan, self.calibrator
        if self.profile is None:
            trace, longest = replace(self.trace, lanes=None), calibrator.endpoint.max_model_len
            calibrator.identify(plan.rounds, clip_context(trace, longest) if longest else trace)
        profile = self.profile or calibrator.profile()
        if folder := self._folder(profile):
            for stale in folder.glob("at-*/measured-*"):
                shutil.rmtree(stale)  # Load tests of an earlier forecast.
            keep(folder, lambda: [(PROFILE, profile.as_json().encode())], self.report_progress)
        if calibrator.stopped:
            raise EndedEarly(f"calibration ended early: {calibrator.stopped}{self._kept()}")
        _require_fits(self.trace, profile.policy_config().max_model_len)
        forecast = make_forecast(
            self.trace,
            profile,
            plan.utilisations,
            replications=plan.replications,
            seed=plan.seed,
        )
        if folder:
            keep(folder, lambda: forecast.files(folder), self.report_progress)
        return forecast

    def _test(self, level: LevelForecast, forecast: Forecast, sender: LoadSender) -> Level:
        """Send the trace as often as planned, each time at a share of the present capacity."""
        plan, trace = self.plan, self.trace
        folder, measured = self._folder(forecast.profile), list[Run]()
        at = folder and folder / level.folder
        for number in range(1, plan.repeats + 1):
            sent, words = self._load(level, forecast, sender)
            self.report_progress(f"load test {number} of {plan.repeats} {words}")
            run = sender.send(sent, level.folder, number, at)
            facts = measured_facts(run, sent, self.calibrator.server_log())
            run.records = [*(facts.steps or ())]
            measured.append(run)
            if at:
                keep(at / f"measured-{number}", run.files, self.report_progress)
        claims = TwoClaims.of(measured, trace, forecast.profile, plan.limits, plan.seed)
        if not trace.lanes:
            sent = at_rate(trace, fmean(float(run.scenario["rate_per_s"]) for run in measured))
        why = self._explain(level, measured, forecast) if plan.why else None
        return Level(level, sent, measured, claims, why)

    def _load(
        self, level: LevelForecast, forecast: Forecast, sender: LoadSender
    ) -> tuple[Trace, str]:
        """Return what is sent now, and words on it; lanes wait for the machine by themselves."""
        if lanes := self.trace.lanes:
            return self.trace, f"in {counted(lanes.lanes, 'lane')}, {lanes.duration_s:g} s"
        capacity_per_s = forecast.capacity_per_s.value * sender.speed(forecast.profile, self.trace)
        sent = at_rate(self.trace, level.utilisation * capacity_per_s)
        return sent, (
            f"at {100 * level.utilisation:.0f} % of the present capacity: {len(sent)} requests at "
            f"{sent.rate_per_s:.2f}/s, {sent.span_s:.0f} s"
        )

    def _explain(
        self, level: LevelForecast, measured: list[Run], forecast: Forecast
    ) -> Explanation:
        """Return competing hypotheses on the errors of the first load test."""
        self.report_progress(f"explaining the error at {100 * level.utilisation:.0f} %")
        run, seed = judgeable(measured)[0], self.plan.seed
        scenario = Scenario(forecast.config, forecast.profile)
        facts = measured_facts(run, self.trace, self.calibrator.server_log())
        return explain_error(scenario, facts, seed=seed)

    def _folder(self, profile: Profile) -> Path | None:
        return self.out and self.out / profile.policy_config().name


def _require_fits(trace: Trace, longest: int) -> None:
    """Refuse requests that are too long; on lanes they end their sessions, unless all are."""
    too_long = sum(request.total_tokens > longest for request in trace)
    if too_long == len(trace) or (too_long and not trace.lanes):
        raise LoadTestError(
            f"{trace.source}: {too_long} of {len(trace)} requests are longer than the {longest} "
            "tokens that the endpoint takes; shorten them with --prompt-scale and --output-scale"
        )
