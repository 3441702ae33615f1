"""``servetwin calibrate``: measure an engine, the bundled one or any endpoint; write a profile."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.scenario.black_box_options import BlackBoxOptions
from app.scenario.common_options import Json, Seed
from app.scenario.endpoint_options import EndpointOptions, ModelOrPreset
from app.scenario.engine_options import EngineChoice, require_engine
from app.scenario.option_groups import Only, takes_options
from app.scenario.policy_options import PolicyOptions

if TYPE_CHECKING:
    from app.twin.calibration import Observed
    from loadtest.endpoint import Endpoint
    from policies.config import PolicyConfig
    from sim.step_times.profile import Profile

LAYOUTS = ("paged", "contiguous")
CALIBRATED_BATCHING = ("continuous", "static")
MEASURED_SETTINGS = ("kv_tokens", "block_tokens", "max_model_len", "max_seqs", "token_budget")


@takes_options
def calibrate(
    endpoint: Annotated[EndpointOptions, Only("api", "prompt")],
    limits: BlackBoxOptions,
    policy: Annotated[PolicyOptions, Only(*MEASURED_SETTINGS)],
    engine: Annotated[EngineChoice, Only("device", "dtype", "threads")],
    out: Annotated[Path, typer.Option(help="Profile to write.")] = Path("profile.json"),
    url: Annotated[
        str | None,
        typer.Option(
            help="An OpenAI-compatible endpoint, measured from outside; default: bundled engine.",
            rich_help_panel=EndpointOptions.PANEL,
        ),
    ] = None,
    model: ModelOrPreset = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the profile; default its file's.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of bursts per server.", min=1)] = 2,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Drive the bundled engine over a grid of shapes and fit its step time, for both KV layouts.

    With --url: drive any OpenAI-compatible endpoint, and learn its step time, policies and limits
    from what its clients see; the API key comes from OPENAI_API_KEY.
    """
    from policies.config import PolicyConfig

    if url is not None:
        probed = replace(endpoint, model=model).probe(url)
        measure_outside(
            probed, out, name or out.stem, rounds, limits.max_minutes, limits.max_requests,
            seed, json,
        )  # fmt: skip
        return
    require_engine()
    engine = replace(engine, model=model or "base", seed=seed)
    profile = measure(policy.over(PolicyConfig()), engine, rounds, name or out.stem)
    profile.save(out)
    if json:
        typer.echo(profile.model_dump_json(by_alias=True))
        return
    for line in describe_profile(profile):
        typer.echo(line)
    typer.echo(f"profile: {out}\nnext: servetwin replay TRACE --profile {out}")


def measure_outside(
    endpoint: "Endpoint",
    out: Path,
    name: str,
    rounds: int,
    max_minutes: float,
    max_requests: int,
    seed: int,
    json: bool,
) -> None:
    """Calibrate a live endpoint, write what was learned, say what was not; 1 if it ended early."""
    from app.twin.black_box.sender import LiveSender
    from app.twin.black_box.verification import outside_calibrator, outside_profile

    def tell(line: str) -> None:
        typer.echo(line, err=True)

    sender = LiveSender(endpoint)
    calibrator = outside_calibrator(endpoint, sender, 60 * max_minutes, max_requests, seed, tell)
    calibrator.identify(rounds)
    profile = outside_profile(calibrator, endpoint, sender, name)
    profile.save(out)
    if json:
        typer.echo(profile.model_dump_json(by_alias=True))
    else:
        lines = [*describe_profile(profile), *calibrator.findings.lines()]
        typer.echo("\n".join([*lines, f"profile: {out}"]))
    if calibrator.broken:
        tell(f"servetwin: calibration ended early: {calibrator.broken}")
        raise typer.Exit(1)


def measure(base: "PolicyConfig", engine: EngineChoice, rounds: int, name: str) -> "Profile":
    """Calibrate static and continuous batching over both KV layouts; one profile of all."""
    from app.twin.verification import make_profile, merge_profiles

    profiles = []
    for layout in LAYOUTS:
        header: dict[str, Any] = {}
        observed: list[Observed] = []
        for batching in CALIBRATED_BATCHING:
            config = replace(base, batching=batching, kv=layout, prefix_cache=False)
            typer.echo(f"calibrating {config.name}", err=True)
            header, found = _rounds(config, engine, rounds)
            observed += found
        profiles.append(make_profile(header, observed, name))
    profiles[0].policies["batching"] = "continuous"
    return merge_profiles(profiles, name)


def _rounds(
    config: "PolicyConfig", engine: EngineChoice, rounds: int
) -> tuple[dict[str, Any], list["Observed"]]:
    from app.twin.calibration import Calibrator
    from app.twin.engines import bundled_engine
    from loadtest.endpoint import probe

    with bundled_engine(config, engine) as live:
        header = live.header()
        endpoint = probe(live.url)
        calibrator = Calibrator(
            endpoint, live.step_log, config, header["clock_zero_s"], engine.seed
        )
        return header, [calibrator.run_round() for _ in range(rounds)]


def describe_profile(profile: "Profile") -> list[str]:
    """What the profile says, part by part."""
    lines = profile.describe()
    for layout, fit in profile.layouts.items():
        error = 100 * (fit.held_out_error or 0)
        lines.append(
            f"{layout}: {fit.steps} steps, held-out error {error:.1f} % (median), drift between "
            f"rounds {100 * fit.drift:.1f} %"
        )
        parts = {name: value for name, value in fit.coefficients.items() if value > 0}
        lines += [f"  {name:<24}{1e6 * value:>12.3f} us" for name, value in parts.items()]
    api = profile.api
    lines.append(
        f"API: request in {1e3 * api.request_s:.2f} ms + {1e6 * api.request_per_token_s:.2f} us "
        f"per prompt token, chunk out {1e3 * api.chunk_s:.2f} ms + "
        f"{1e6 * api.chunk_per_sequence_s:.0f} us per sequence"
    )
    return lines
