"""``servetwin calibrate``: measure an engine, the bundled one or any endpoint; write a profile."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from app.scenario.black_box_options import BlackBoxOptions
from app.scenario.common_options import Json, Seed
from app.scenario.endpoint_options import EndpointOptions, ModelOrPreset
from app.scenario.engine_options import EngineChoice, require_engine
from app.scenario.option_groups import Only, takes_options
from app.scenario.policy_options import PolicyOptions
from app.text.progress import report_progress

if TYPE_CHECKING:
    from sim.step_times.profile import Profile

MEASURED_SETTINGS = ("kv_tokens", "block_tokens", "max_model_len", "max_seqs", "token_budget")


@takes_options
def calibrate(
    endpoint: Annotated[EndpointOptions, Only("api", "prompt")],
    limits: BlackBoxOptions,
    policy: Annotated[PolicyOptions, Only(*MEASURED_SETTINGS)],
    engine: Annotated[EngineChoice, Only("device", "dtype", "threads")],
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
    """
    from app.text.verdict import profile_lines

    more = [f"profile: {out}"]
    if url is None:
        engine = replace(engine, model=model or "base", seed=seed)
        profile, stopped = _bundled(engine, policy, rounds, name or out.stem), None
        more.append(f"next: servetwin replay TRACE --profile {out}")
    else:
        from app.twin.black_box.burst_sender import Allowance
        from app.twin.black_box.calibration import BlackBoxCalibrator

        probed = replace(endpoint, model=model).probe(url)
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


def _bundled(engine: EngineChoice, policy: PolicyOptions, rounds: int, name: str) -> "Profile":
    require_engine()
    from app.twin.step_log_calibration import calibrate_bundled
    from policies.config import PolicyConfig

    return calibrate_bundled(policy.over(PolicyConfig()), engine, rounds, name, report_progress)
