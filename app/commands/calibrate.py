"""``servetwin calibrate``: measure an engine, the bundled one or any endpoint; write a profile."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.scenario import black_box_options as outside
from app.scenario import options
from app.scenario.endpoint_options import PromptChoice
from app.scenario.options import PolicyOptions

if TYPE_CHECKING:
    from app.twin.calibration import Observed
    from loadtest.endpoint import Endpoint
    from policies.config import PolicyConfig
    from sim.step_times.profile import Profile

LAYOUTS = ("paged", "contiguous")
CALIBRATED_BATCHING = ("continuous", "static")


def calibrate(
    out: Annotated[Path, typer.Option(help="Profile to write.")] = Path("profile.json"),
    url: Annotated[
        str | None,
        typer.Option(
            help="An OpenAI-compatible endpoint, measured from outside; default: bundled engine.",
            rich_help_panel=outside.PANEL,
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model preset (base), or with --url the served model.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the profile; default its file's.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of bursts per server.", min=1)] = 2,
    max_minutes: outside.MaxMinutes = 5.0,
    max_requests: outside.MaxRequests = 400,
    api: outside.Api = None,
    prompt: outside.Prompt = PromptChoice.auto,
    kv_tokens: options.KVTokens = None,
    block_tokens: options.BlockTokens = None,
    max_model_len: options.MaxModelLen = None,
    max_seqs: options.MaxSeqs = None,
    token_budget: options.TokenBudget = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = 1,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Drive the bundled engine over a grid of shapes and fit its step time, for both KV layouts.

    With --url: drive any OpenAI-compatible endpoint, and learn its step time, policies and limits
    from what its clients see; the API key comes from OPENAI_API_KEY.
    """
    from policies.config import PolicyConfig

    if url is not None:
        from loadtest.endpoint import probe

        endpoint = probe(url, model=model, api=api.value if api else None, prompt=prompt.value)
        measure_outside(
            endpoint, out, name or out.stem, rounds, max_minutes, max_requests, seed, json
        )
        return
    options.require_engine()
    given = PolicyOptions(
        kv_tokens=kv_tokens,
        block_tokens=block_tokens,
        max_model_len=max_model_len,
        max_seqs=max_seqs,
        token_budget=token_budget,
    )
    engine = options.EngineChoice(model or "base", device, dtype, threads, seed)
    profile = measure(given.over(PolicyConfig()), engine, rounds, name or out.stem)
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


def measure(
    base: "PolicyConfig", engine: options.EngineChoice, rounds: int, name: str
) -> "Profile":
    """Calibrate static and continuous batching over both KV layouts; one profile of all."""
    from dataclasses import replace

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
    config: "PolicyConfig", engine: options.EngineChoice, rounds: int
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
