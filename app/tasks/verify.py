"""Verify: calibrate, predict, load-test and judge, on one engine per policy."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from servetwin.app.calibration.calibrator import Calibrator
from servetwin.app.command import print_result
from servetwin.app.reports.claims import LEGEND
from servetwin.app.reports.progress import progress, report_progress, saved, saved_if_asked
from servetwin.app.reports.run_words import outside_warning
from servetwin.app.reports.verdict import (
    as_json,
    profile_lines,
    recorded_lines,
    summary_table,
    verdict_lines,
)
from servetwin.app.scenario.options.engine import EngineChoice, require_engine
from servetwin.app.scenario.options.groups import given, require_absent
from servetwin.app.scenario.options.measured import VerifyOptions
from servetwin.app.scenario.scenarios import recorded_server
from servetwin.app.scenario.settings import policies_named
from servetwin.app.tasks.calibrate import MOST_SIMULATIONS, black_box, recorded_run
from servetwin.app.verdict.claims import EXIT_CODES, Outcome, worst
from servetwin.app.verdict.recorded import verify_recorded
from servetwin.app.verdict.verification import (
    BLACK_BOX_LIMITS,
    BLACK_BOX_UTILISATIONS,
    STEP_LOG_UTILISATIONS,
    TESTS,
    Plan,
    Verification,
)
from servetwin.app.verdict.verifier import Verifier
from servetwin.policies.config import PolicyConfig
from servetwin.sim.step_times.profile import Profile, load_profile
from servetwin.workloads.errors import EngineError, LoadTestError
from servetwin.workloads.trace import Trace

if TYPE_CHECKING:
    from servetwin.app.serving.engines import LiveEngine

OF_ONE_ENGINE = (
    "not with --technique, which compares two bundled engines of one policy under loads of its own"
)


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """What is to be verified, whatever the endpoint."""

    trace: Trace
    plan: Plan
    out: Path | None = None
    profile: Profile | None = None
    prompt_salt: str | None = None
    """Of a bundled engine; another endpoint has its own."""

    def run(self, calibrator: Calibrator) -> Verification:
        """Verify one endpoint."""
        return Verifier(
            calibrator, self.trace, self.plan, report_progress, self.out, self.profile
        ).run()

    def run_on(self, engine: "LiveEngine") -> Verification:
        """Verify a bundled engine by its step log."""
        from servetwin.app.calibration.step_log import StepLogCalibrator

        calibrator = StepLogCalibrator(engine, self.plan.seed, report_progress, self.prompt_salt)
        profile = self.profile and self.profile.with_policies(calibrator.config)
        return replace(self, profile=profile).run(calibrator)


def verify_live(options: VerifyOptions) -> None:
    """Verify the policies on bundled engines, or an endpoint; or techniques, if some are named."""
    server, settings, out = options.server, options.settings, options.out
    techniques = bool(server.servers.techniques)
    server.require_live(settings, *(("--technique", "--without") if techniques else ()))
    engine = server.choice()
    base = settings.over(PolicyConfig() if server.url else engine.policies())
    labels = options.policy or ("continuous+paged",)
    configs = [policies_named(label, base, "--policy") for label in labels]
    profile = load_profile(options.profile) if options.profile else None
    requests = replace(options.part, path=options.trace, seed=server.seed)
    in_lanes = given(options.part, "lanes")
    if techniques:
        others = {"--url": server.url, "--policy": options.policy[1:]} | in_lanes
        require_absent(others | given(options, "utilisation", "why"), OF_ONE_ENGINE)
        from servetwin.app.tasks.verify_techniques import finish_effects, techniques_task

        task = techniques_task(engine.options(configs[0]), options)
        task = replace(task, trace=requests.read() if options.trace else None, profile=profile)
        with options.overwriting.claimed_if_asked(out) as claim:
            finish_effects(task.run(), claim.begin() if claim else None, server.json)
        return
    if in_lanes:
        require_absent(given(options, "utilisation"), "lanes are a load by themselves")
    _require_different_loads(options.utilisation)
    utilisations = options.utilisation or STEP_LOG_UTILISATIONS
    repeats = options.repeats or TESTS
    plan = Plan(utilisations, repeats, seed=server.seed, why=options.why)
    trace, endpoint = requests.read_or_sample(), server.probe()
    with options.overwriting.claimed_if_asked(out) as claim:
        at = claim.begin() if claim else None
        verified = VerifyTask(trace, plan, at, profile, server.endpoint.prompt_salt)
        if server.url is None or endpoint is None:
            finish(verify_policies(configs, engine, verified), at, server.json)
        elif not options.as_black_box and (live := _with_step_log(server.url)):
            finish([verified.run_on(live)], at, server.json)
        else:
            utilisations = options.utilisation or BLACK_BOX_UTILISATIONS
            plan = replace(plan, utilisations=utilisations, limits=BLACK_BOX_LIMITS)
            verification = replace(verified, plan=plan).run(black_box(server, endpoint))
            finish([verification], at, server.json)


def verify_recorded_run(options: VerifyOptions) -> None:
    """Judge a prediction by a recorded run."""
    server = options.server
    assert server.recorded
    server.require_recorded_alone(
        given(options, "trace", "policy", "utilisation") | given(options.part, "lanes")
    )
    servers = server.recorded_servers(options.profile)
    with options.overwriting.claimed_if_asked(options.out) as claim:
        recorded = recorded_run(server.recorded, options.part)
        scenario = recorded_server(recorded.trace, servers, options.settings, server.link)
        verification = verify_recorded(recorded, scenario, seed=server.seed)
        if options.why:
            with progress("simulations", total=MOST_SIMULATIONS) as advance:
                verification = verification.explained(recorded, server.seed, advance)
        with saved_if_asked(verification, claim.begin() if claim else None) as place:
            place_lines = [f"run folder: {place}"] if place else []
            lines = [*recorded_lines(verification), *place_lines]
            print_result(server.json, verification.as_dict(), lines)
        exit_with([verification.outcome])


def verify_policies(
    configs: Sequence[PolicyConfig], choice: EngineChoice, task: VerifyTask
) -> Iterator[Verification]:
    """Verify each policy on a bundled engine of its own, one after the other."""
    require_engine()
    from servetwin.app.serving.engines import started_engine

    for config in configs:
        report_progress(f"{config.name}: starting the bundled engine ({choice.model})")
        with started_engine(replace(choice.options(config), beat=True)) as engine:
            yield task.run_on(engine)


def finish(verifications: Iterable[Verification], out: Path | None, json: bool) -> None:
    """Save and print each as it is done, then the table; exit with the code of the worst."""
    done, folders = [], []
    with ExitStack() as saving:
        for one in verifications:
            done.append(one)
            if out:
                folders.append(saving.enter_context(saved(one, out / one.forecast.config.name)))
            if not json:
                described = profile_lines(one.forecast.profile) if one.identified else []
                typer.echo("\n".join([*described, *verdict_lines(one)]))
            for level in one.levels:
                provenance = level.prediction.run.extra["provenance"]
                if warning := outside_warning(provenance, widened=True):
                    report_progress(warning)
        typer.echo(as_json(done) if json else "\n".join([*summary_table(done), "", LEGEND]))
        if out:
            places = dict.fromkeys(out if out in at.parents else at for at in folders)
            report_progress(f"run folders: {', '.join(map(str, places))}")
        exit_with(one.outcome for one in done)


def exit_with(outcomes: Iterable[Outcome]) -> None:
    """End the command with the exit code of the worst outcome, unless all hold."""
    if code := EXIT_CODES[worst(outcomes)]:
        raise typer.Exit(code)


def _with_step_log(url: str) -> "LiveEngine | None":
    """Return the bundled engine at ``url`` if its step log can be read here, else None."""
    from servetwin.app.serving.engines import engine_at

    try:
        return engine_at(url)
    except EngineError as error:
        report_progress(f"{error}; calibrating as a black box")
        return None


def _require_different_loads(utilisations: Sequence[float]) -> None:
    """Raise ``LoadTestError`` for two loads of the same per cent, which would share a folder."""
    shares = Counter(f"{100 * utilisation:.0f} %" for utilisation in utilisations)
    if repeated := [share for share, count in shares.items() if count > 1]:
        raise LoadTestError(
            f"--utilisation: {repeated[0]} is given {shares[repeated[0]]} times; loads must differ "
            "by at least 0.01, and --repeats says how often each is tested"
        )
