"""``servetwin calibrate``: measure an engine, the bundled one or any endpoint; write a profile."""

from collections.abc import Mapping
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from servetwin.app.reports.progress import progress, report_progress
from servetwin.app.scenario.options.common import Json, Overwriting, Recorded, Seed
from servetwin.app.scenario.options.endpoint import BlackBoxOptions, EndpointOptions, ModelOrPreset
from servetwin.app.scenario.options.engine import EngineChoice, require_engine
from servetwin.app.scenario.options.groups import Only, takes_options
from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions
from servetwin.app.scenario.options.server import ServerOptions
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.workloads.errors import LoadTestError

if TYPE_CHECKING:
    from servetwin.loadtest.recorded.recorded_run import RecordedRun
    from servetwin.sim.step_times.profile import Profile

MOST_SIMULATIONS = 200
"""About as many as a fit to a recorded run takes at most."""
SETTINGS_OF_A_RECORDED_RUN = ("preset", "batching", "kv", "prefix_cache", "settings")
"""Of a run that was recorded; a live engine is named by --policy, or known from its log."""
MEASURED_SETTINGS = ("kv_tokens", "block_tokens", "max_model_len", "max_seqs", "token_budget")


@takes_options(
    "--url", "--model", "--recorded", "--device", "--threads", "--rounds", "--out",
)  # fmt: skip
def calibrate(
    endpoint: Annotated[EndpointOptions, Only("api", "prompt", "prompt_salt")],
    limits: BlackBoxOptions,
    policy: Annotated[PolicyOptions, Only(*MEASURED_SETTINGS, *SETTINGS_OF_A_RECORDED_RUN)],
    engine: Annotated[EngineChoice, Only("device", "dtype", "threads")],
    served: Annotated[ServerOptions, Only("hardware", "techniques", "without", "tables")],
    link: Annotated[ClusterOptions, Only("link_us", "link_gb_per_s")],
    overwriting: Overwriting,
    table: Annotated[TraceOptions, Only("columns")],
    recorded: Recorded = None,
    until: Annotated[
        str,
        Option(
            metavar="SHARE",
            help="With --recorded: fit the stamps of the first 50%% of the requests, say.",
        ),
    ] = "100%",
    out: Annotated[Path, Option(help="Profile to write.")] = Path("profile.json"),
    url: Annotated[
        str | None,
        Option(
            help="An OpenAI-compatible endpoint, measured as a black box; default: bundled engine.",
            rich_help_panel=EndpointOptions.PANEL,
        ),
    ] = None,
    model: ModelOrPreset = None,
    name: Annotated[str | None, Option(help="Name of the profile; default its file's.")] = None,
    rounds: Annotated[int, Option(help="Rounds of bursts per server.", min=1)] = 2,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Drive the bundled engine over a grid of shapes and fit its step time, for both KV layouts.

    With --url: drive any OpenAI-compatible endpoint, and learn its step time, policies and limits
    from what its clients see; the API key comes from OPENAI_API_KEY.

    With --recorded: fit the step times to the stamps of requests in a run that was recorded
    elsewhere, given the server's limits; with --model and --hardware or --layers around these.
    """
    from servetwin.app.reports.verdict import profile_lines

    if recorded is not None:
        require_recorded_alone({"url": url})
        servers = replace(served, model=model)
        with overwriting.claimed_profile(out):
            run = recorded_run(recorded, table)
            _recorded(run, until, servers, link, policy, out, name or out.stem, seed, json)
        return
    if table.columns is not None:
        raise LoadTestError("--map: names the columns of a table; give it with --recorded")
    served.check_absent(*(() if url else ("technique", "without")))
    policy.check_live(SETTINGS_OF_A_RECORDED_RUN)
    with overwriting.claimed_profile(out):
        more = [f"profile: {out}"]
        if url is None:
            engine = replace(engine, model=model or "base", seed=seed)
            sent = (rounds, endpoint.prompt_salt)
            found = _bundled(engine, policy, served, *sent, name or out.stem)
            profile, stopped = found, None
            more.append(f"next: servetwin replay TRACE --profile {out}")
        else:
            from servetwin.app.calibration.black_box.calibration import BlackBoxCalibrator
            from servetwin.app.calibration.black_box.sender import Allowance

            probed = replace(endpoint, model=model).probe_generating(url)
            allowance = Allowance(60 * limits.max_minutes, limits.max_requests)
            calibrator = BlackBoxCalibrator(probed, allowance, seed, report_progress)
            calibrator.identify(rounds)
            profile, stopped = calibrator.profile(name or out.stem), calibrator.stopped
            more = [*calibrator.limits.lines(), *more]
        profile.save(out)
    if json:
        typer.echo(profile.model_dump_json(by_alias=True))
    else:
        typer.echo("\n".join([*profile_lines(profile), *more]))
    if stopped:
        report_progress(f"servetwin: calibration ended early: {stopped}")
        raise typer.Exit(1)


def recorded_run(path: Path, table: TraceOptions) -> "RecordedRun":
    """Return a run that was recorded: of a run folder, or of a file."""
    from servetwin.loadtest.recorded.recorded_run import load_recorded_run
    from servetwin.workloads.tables.mapping import parse_mapping

    return load_recorded_run(path, parse_mapping(table.columns) if table.columns else None)


def _recorded(
    recorded: "RecordedRun",
    until: str,
    servers: ServerOptions,
    link: ClusterOptions,
    policy: PolicyOptions,
    out: Path,
    name: str,
    seed: int,
    json: bool,
) -> None:
    """Calibrate from a recorded run."""
    from servetwin.app.calibration.recorded import calibrate_recorded
    from servetwin.app.reports.verdict import calibration_lines
    from servetwin.app.scenario.scenarios import recorded_prior
    from servetwin.sim.experiments.conversion import linearised
    from servetwin.sim.experiments.stamp_fit import FITTED

    config, model_times = recorded_prior(recorded.trace, servers, policy, link)
    prior = linearised(model_times, FITTED) if model_times else None
    with progress("simulations", total=MOST_SIMULATIONS) as advance:
        found = calibrate_recorded(
            recorded, config, until=_share(until), prior=prior, seed=seed, on_simulation=advance
        )
    profile = found.profile(name, recorded, servers.model)
    profile.save(out)
    if json:
        typer.echo(dumps({"profile": str(out), **found.as_dict()}))
    else:
        typer.echo("\n".join([*calibration_lines(found, prior), f"profile: {out}"]))


def require_recorded_alone(live: Mapping[str, object]) -> None:
    """Raise ``LoadTestError`` for an option of a live endpoint beside ``--recorded``."""
    for name, value in live.items():
        if value:
            raise LoadTestError(f"--{name}: sends a load; --recorded takes one that was sent")


def _share(text: str) -> float:
    """Return the share that ``50%`` or ``0.5`` stands for."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise LoadTestError(f"--until: {text!r} is not a share such as 50% or 0.5")
    return share


def _bundled(
    engine: EngineChoice,
    policy: PolicyOptions,
    served: ServerOptions,
    rounds: int,
    prompt_salt: str | None,
    name: str,
) -> "Profile":
    require_engine()
    from servetwin.app.calibration.step_log import calibrate_bundled

    config = policy.over(engine.policies())
    sent = (rounds, name, report_progress, prompt_salt)
    return calibrate_bundled(config, engine, *sent, served.toggles())
