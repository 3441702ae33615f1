"""``servetwin demo``: the whole loop on this machine, in under three minutes."""

from pathlib import Path
from typing import Annotated

from typer import Option

from servetwin.app.scenario.options.common import Json, Overwriting, Seed
from servetwin.app.scenario.options.groups import takes_options


@takes_options()
def demo(
    overwriting: Overwriting,
    out: Annotated[
        Path | None, Option(help="Folder for the run folders; default a new one, runs/demo.")
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Serve, calibrate, predict, load-test and judge two policies on the bundled engine."""
    from servetwin.app.tasks.demo import run_demo

    with overwriting.claimed_or_new(out, Path("runs/demo")) as claim:
        run_demo(claim, seed, json)
