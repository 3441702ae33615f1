"""``servetwin verify``: calibrate, predict, load-test and judge, on one engine per policy."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from servetwin.app.commands.calibrate import (
    MEASURED_SETTINGS,
    MOST_SIMULATIONS,
    SETTINGS_OF_A_RECORDED_RUN,
    recorded_run,
    require_recorded_alone,
)
from servetwin.app.commands.verify_techniques import (
    finish_effects,
    require_two_engines,
    techniques_task,
)
from servetwin.app.reports.progress import report_progress, saved
from servetwin.app.scenario.options.common import Json, Overwriting, Recorded, RunFolder, Seed
from servetwin.app.scenario.options.endpoint import BlackBoxOptions, EndpointOptions, ModelOrPreset
from servetwin.app.scenario.options.engine import EngineChoice, require_engine
from servetwin.app.scenario.options.groups import Only, takes_options
from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions
from servetwin.app.scenario.options.server import ServerOptions
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.app.scenario.settings import policies_named
from servetwin.workloads.errors import LoadTestError

if TYPE_CHECKING:
    from servetwin.app.calibration.calibrator import Calibrator
    from servetwin.app.serving.engines import LiveEngine
    from servetwin.app.verdict.verification import Plan, Verification
    from servetwin.loadtest.endpoint import Endpoint
    from servetwin.loadtest.recorded.recorded_run import RecordedRun
    from servetwin.policies.config import PolicyConfig
    from servetwin.sim.records.run_claim import RunClaim
    from servetwin.sim.step_times.profile import Profile
    from servetwin.workloads.trace import Trace


PARTS_OF_A_TRACE = (
    "reader", "columns", "max_bad_rows", "start_s", "end_s", "limit", "prompt_scale",
    "output_scale",
)  # fmt: skip


SETTINGS = ("reservation", *MEASURED_SETTINGS, "wait_limit_ms")


@takes_options(
    "--url", "--policy", "--model", "--trace", "--utilisation", "--profile", "--out", "--why",
)  # fmt: skip
def verify(
    endpoint: Annotated[EndpointOptions, Only("api", "prompt", "prompt_salt")],
    limits: BlackBoxOptions,
    settings: Annotated[PolicyOptions, Only(*SETTINGS, *SETTINGS_OF_A_RECORDED_RUN)],
    part: Annotated[TraceOptions, Only(*PARTS_OF_A_TRACE)],
    engine: Annotated[EngineChoice, Only("device", "dtype", "threads")],
    served: Annotated[ServerOptions, Only("hardware", "techniques", "without", "tables")],
    link: Annotated[ClusterOptions, Only("link_us", "link_gb_per_s")],
    overwriting: Overwriting,
    trace: Annotated[
        Path | None, typer.Option(help="Trace to predict; default the bundled sample.")
    ] = None,
    recorded: Recorded = None,
    url: Annotated[
        str | None, typer.Option(help="A running endpoint; default: start the bundled engine.")
    ] = None,
    as_black_box: Annotated[
        bool,
        typer.Option(
            "--black-box",
            "--outside",
            help="With --url: use no step log, only what clients see (so for foreign endpoints).",
            rich_help_panel=EndpointOptions.PANEL,
        ),
    ] = False,
    policy: Annotated[
        tuple[str, ...],
        typer.Option(help="Such as static+contiguous or continuous+paged+prefix; repeatable."),
    ] = (),
    model: ModelOrPreset = None,
    utilisation: Annotated[
        tuple[float, ...],
        typer.Option(
            help="Share of the predicted capacity offered (0.7; of a black box 0.5, then 0.7); "
            "from 0.9 on, of the capacity that is measured first; repeatable.",
            min=0.05,
            max=0.95,
        ),
    ] = (),
    repeats: Annotated[int, typer.Option(help="Load tests at each load, at least.", min=1)] = 2,
    minutes: Annotated[
        float,
        typer.Option(help="Time for more load tests at a load, until they decide.", min=0.0),
    ] = 4.0,
    profile: Annotated[
        str | None,
        typer.Option(help="Judge this profile (a name or a .json file) instead of calibrating."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the forecast and load tests in --out.")
    ] = False,
    why: Annotated[
        bool,
        typer.Option(
            "--why", help="Replace part after part of the prediction by what was measured."
        ),
    ] = False,
    seed: Seed = 0,
    out: RunFolder = None,
    json: Json = False,
) -> None:
    """Calibrate, forecast a trace, then load-test the engine and judge the forecast.

    The exit code is 0 if the forecast holds, 1 if it is refuted, 3 if the load tests cannot tell.
    An endpoint without a step log that can be read here is calibrated as a black box. With
    --technique (repeatable), the bundled engine runs without and with it, and the effect that its
    formula predicts is judged. With --recorded nothing is sent: a run that was recorded elsewhere
    judges a profile or layer times.
    """
    if recorded is not None:
        given = {"url": url, "trace": trace, "policy": policy, "utilisation": utilisation}
        require_recorded_alone({**given, "resume": resume})
        servers = replace(served, model=model, profiles=(profile,) if profile else ())
        with overwriting.claimed_if_asked(out) as claim:
            run = recorded_run(recorded, part)
            _verify_recorded(run, servers, link, settings, seed, why, claim, json)
        return
    settings.check_live(SETTINGS_OF_A_RECORDED_RUN)
    engine = replace(engine, model=model or "base", seed=seed)
    configs = _policies(policy, settings, None if url else engine)
    judged = _judged(profile)
    requests = replace(part, path=trace, seed=seed)
    if served.techniques:
        alone = {"url": url, "utilisation": utilisation, "policy": policy[1:]}
        require_two_engines({**alone, "resume": resume, "why": why})
        task = techniques_task(engine.options(configs[0]), served, repeats, minutes, seed)
        task = replace(task, trace=requests.read() if trace else None, profile=judged)
        with overwriting.claimed_if_asked(out) as claim:
            finish_effects(task.run(), claim.begin() if claim else None, json)
        return
    served.check_absent()
    if resume and out is None:
        raise LoadTestError("--resume: say with --out where the forecast is")
    _require_loads_of_their_own(utilisation)
    from servetwin.app.verdict.verification import STEP_LOG_UTILISATIONS, Plan

    plan = Plan(utilisation or STEP_LOG_UTILISATIONS, repeats, minutes, seed=seed, why=why)
    sent = requests.read_or_sample()
    probed = replace(endpoint, model=model).probe_generating(url) if url else None
    with overwriting.claimed_if_asked(out, resume) as claim:
        at = claim.begin() if claim else None
        verified = VerifyTask(sent, plan, at, judged, resume, endpoint.prompt_salt)
        if url is None or probed is None:
            finish(verify_policies(configs, engine, verified), at, json)
        elif not as_black_box and (live := _with_step_log(url)):
            finish([_verify_engine(live, verified)], at, json)
        else:
            finish([_verify_black_box(probed, limits, verified, utilisation)], at, json)


def _policies(
    labels: Sequence[str], settings: PolicyOptions, engine: EngineChoice | None
) -> list["PolicyConfig"]:
    """Return the policies to verify, on a bundled engine or another."""
    from servetwin.policies.config import PolicyConfig

    base = settings.over(engine.policies() if engine else PolicyConfig())
    return [policies_named(label, base, "--policy") for label in labels or ("continuous+paged",)]


def _judged(profile: str | None) -> "Profile | None":
    """Return the profile that is judged instead of a calibration."""
    from servetwin.sim.step_times.profile import load_profile

    return load_profile(profile) if profile else None


def _verify_black_box(
    endpoint: "Endpoint",
    limits: BlackBoxOptions,
    task: "VerifyTask",
    utilisations: tuple[float, ...],
) -> "Verification":
    """Verify an endpoint by what its clients see alone."""
    from servetwin.app.calibration.black_box.calibration import BlackBoxCalibrator
    from servetwin.app.calibration.black_box.sender import Allowance
    from servetwin.app.verdict.verification import (
        BLACK_BOX_LIMITS,
        BLACK_BOX_ROUNDS,
        BLACK_BOX_UTILISATIONS,
    )

    shares = utilisations or BLACK_BOX_UTILISATIONS
    plan = replace(task.plan, utilisations=shares, rounds=BLACK_BOX_ROUNDS, limits=BLACK_BOX_LIMITS)
    task = replace(task, plan=plan)
    allowance = Allowance(60 * limits.max_minutes, limits.max_requests)
    return task.run(BlackBoxCalibrator(endpoint, allowance, task.plan.seed, report_progress))


def _verify_recorded(
    recorded: "RecordedRun",
    servers: ServerOptions,
    link: ClusterOptions,
    settings: PolicyOptions,
    seed: int,
    why: bool,
    claim: "RunClaim | None",
    json: bool,
) -> None:
    """Judge a prediction by a recorded run."""
    from servetwin.app.reports.progress import progress, saved_if_asked
    from servetwin.app.reports.verdict import recorded_as_json, recorded_lines
    from servetwin.app.scenario.scenarios import recorded_server
    from servetwin.app.verdict.claims import EXIT_CODES
    from servetwin.app.verdict.recorded import verify_recorded

    scenario = recorded_server(recorded.trace, servers, settings, link)
    found = verify_recorded(recorded, scenario, seed=seed)
    if why:
        with progress("simulations", total=MOST_SIMULATIONS) as advance:
            found = found.explained(recorded, seed, advance)
    with saved_if_asked(found, claim.begin() if claim else None) as place:
        if json:
            typer.echo(recorded_as_json(found))
        else:
            kept = [f"run folder: {place}"] if place else []
            typer.echo("\n".join([*recorded_lines(found), *kept]))
    if code := EXIT_CODES[found.outcome]:
        raise typer.Exit(code)


def _require_loads_of_their_own(utilisations: Sequence[float]) -> None:
    """Raise ``LoadTestError`` for two loads of the same per cent, which would share a folder."""
    shares = Counter(f"{100 * utilisation:.0f} %" for utilisation in utilisations)
    if repeated := [share for share, count in shares.items() if count > 1]:
        raise LoadTestError(
            f"--utilisation: {repeated[0]} is given {shares[repeated[0]]} times; loads must differ "
            "by at least 0.01, and --repeats says how often each is tested"
        )


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """What is to be verified, whatever the endpoint."""

    trace: "Trace"
    plan: "Plan"
    out: Path | None = None
    profile: "Profile | None" = None
    resume: bool = False
    prompt_salt: str | None = None
    """Of a bundled engine; another endpoint has its own."""

    def run(self, calibrator: "Calibrator") -> "Verification":
        """Verify one endpoint."""
        from servetwin.app.verdict.verifier import Verifier

        return Verifier(
            calibrator, self.trace, self.plan, report_progress, self.out, self.profile, self.resume
        ).run()


def finish(verifications: Iterable["Verification"], out: Path | None, json: bool) -> None:
    """Save and print each as it is done, then the table; exit with the code of the worst."""
    from servetwin.app.reports.claims import LEGEND
    from servetwin.app.reports.verdict import as_json, summary_table
    from servetwin.app.verdict.claims import EXIT_CODES, worst

    found, folders = [], []
    with ExitStack() as kept:
        for one in verifications:
            found.append(one)
            if out:
                folders.append(kept.enter_context(saved(one, out / one.config.name)))
            _print(one, json)
        if json:
            typer.echo(as_json(found))
        else:
            typer.echo("\n".join([*summary_table(found), "", LEGEND]))
        if out:
            places = dict.fromkeys(out if out in at.parents else at for at in folders)
            report_progress(f"run folders: {', '.join(map(str, places))}")
        if code := EXIT_CODES[worst(one.outcome for one in found)]:
            raise typer.Exit(code)


def _print(found: "Verification", json: bool) -> None:
    """Print the verdict, unless JSON follows, and the warnings in any case."""
    from servetwin.app.reports.run_words import outside_warning
    from servetwin.app.reports.verdict import profile_lines, verdict_lines

    if not json:
        described = profile_lines(found.profile) if found.identified else []
        typer.echo("\n".join([*described, *verdict_lines(found)]))
    for level in found.levels:
        if warning := outside_warning(level.provenance, widened=True):
            report_progress(warning)


def verify_policies(
    configs: Sequence["PolicyConfig"],
    choice: EngineChoice,
    task: VerifyTask,
) -> Iterator["Verification"]:
    """Verify each policy on a bundled engine of its own, one after the other."""
    require_engine()
    from servetwin.app.serving.engines import bundled_engine

    for config in configs:
        report_progress(f"{config.name}: starting the bundled engine ({choice.model})")
        with bundled_engine(config, choice) as engine:
            yield _verify_engine(engine, task)


def _with_step_log(url: str) -> "LiveEngine | None":
    """Return the bundled engine at ``url`` if its step log can be read here, else None."""
    from servetwin.app.serving.engines import engine_at
    from servetwin.workloads.errors import EngineError

    try:
        return engine_at(url)
    except EngineError as error:
        report_progress(f"{error}; calibrating as a black box")
        return None


def _verify_engine(engine: "LiveEngine", task: VerifyTask) -> "Verification":
    from servetwin.app.calibration.step_log import StepLogCalibrator

    calibrator = StepLogCalibrator(engine, task.plan.seed, report_progress, task.prompt_salt)
    if task.profile:
        task = replace(task, profile=task.profile.with_policies(calibrator.config))
    return task.run(calibrator)
