"""``servetwin profile convert``: the step times of tables as a profile that needs no tables."""

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from servetwin.app.scenario.options.common import Json, Overwriting
from servetwin.app.scenario.options.groups import Only, takes_options
from servetwin.app.scenario.options.policy import ClusterOptions
from servetwin.app.scenario.options.server import ServerOptions


@takes_options("--model", "--hardware", "--operators", "--phases", "--layers", "--kernels", "--out")
def profile_convert(
    servers: Annotated[ServerOptions, Only("model", "hardware", "techniques", "without", "tables")],
    link: Annotated[ClusterOptions, Only("link_us", "link_gb_per_s")],
    overwriting: Overwriting,
    out: Annotated[Path, Option(help="Profile to write.")] = Path("profile.json"),
    as_json: Json = False,
) -> None:
    """Turn kernel tables, layer times, operators or a data sheet into a profile.

    The error of the conversion is printed: on batches that the fit has not seen.
    """
    from servetwin.sim.experiments.conversion import converted_profile
    from servetwin.workloads.errors import PolicyError

    if servers.model is None:
        raise PolicyError("--model: say what to convert, with --hardware and a table")
    scenario = servers.base(link.link())
    hardware = servers.hardware or scenario.profile.name
    with overwriting.claimed_profile(out):
        profile, error = converted_profile(out.stem, scenario, servers.model, hardware)
        profile.save(out)
    if as_json:
        typer.echo(
            json.dumps({"profile": str(out), "median_error": error.median, "p90": error.p90})
        )
        return
    typer.echo("\n".join([*scenario.profile.describe(), f"error: {error}", f"profile: {out}"]))
