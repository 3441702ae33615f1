"""``servetwin replay``: simulate a trace under a policy; ``compare`` two."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from servetwin.app.scenario.options.common import TRACE, PictureOptions
from servetwin.app.scenario.options.groups import takes_options
from servetwin.app.scenario.options.policy import ScenarioOptions
from servetwin.app.scenario.options.simulations import KEPT, ReplayOptions, RunOptions

OptionalTrace = Annotated[Path | None, TRACE]


@takes_options(
    "--profile", "--model", "--gpu", "--batching", "--kv", "--rate", "--limit", "--out",
)  # fmt: skip
def replay(
    options: ScenarioOptions,
    replayed: ReplayOptions,
    single: RunOptions,
    picture: PictureOptions,
    trace: OptionalTrace = None,
) -> None:
    """Simulate TRACE under a policy and print TTFT, TPOT, throughput with their intervals."""
    plotted = picture.file(overwrite=replayed.overwriting.overwrite, runs=1)
    from servetwin.app.tasks.replay import Replay

    run = Replay.read(options, replayed, trace)
    run.replay(single, plotted, picture.chart)


@takes_options(
    "--profile", "--model", "--gpu", "--rate", "--limit", "--replications", "--plot", "--out",
)  # fmt: skip
def replay_compare(
    a: Annotated[str, Argument(help="A policy: preset, label such as static+paged, KEY=VALUE.")],
    b: Annotated[str, Argument(help="The policy that is compared with it.")],
    options: ScenarioOptions,
    replayed: Annotated[ReplayOptions, KEPT],
    single: Annotated[RunOptions, ("replications",)],
    picture: PictureOptions,
    trace: OptionalTrace = None,
) -> None:
    """Simulate TRACE under two policies over the same seeds, and print how B differs from A."""
    plotted = picture.file(overwrite=replayed.overwriting.overwrite, runs=2)
    from servetwin.app.tasks.replay import Replay

    run = Replay.read(options, replayed, trace)
    run.compare((a, b), single.replications, plotted, picture.chart)
