"""``servetwin replay``: simulate a trace under a policy; ``compare`` two; ``stream`` a long one."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from servetwin.app.command import lasting_imports
from servetwin.app.scenario.options.common import TRACE, PictureOptions
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.groups import FieldSubset, takes_options
from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions, ScenarioOptions
from servetwin.app.scenario.options.simulations import (
    KEPT,
    STREAMED,
    ReplayOptions,
    RunOptions,
)
from servetwin.app.scenario.options.trace import TraceOptions

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
    with lasting_imports():
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
    replayed: Annotated[ReplayOptions, FieldSubset(*KEPT)],
    single: Annotated[RunOptions, FieldSubset("replications")],
    picture: PictureOptions,
    trace: OptionalTrace = None,
) -> None:
    """Simulate TRACE under two policies over the same seeds, and print how B differs from A."""
    plotted = picture.file(overwrite=replayed.overwriting.overwrite, runs=2)
    with lasting_imports():
        from servetwin.app.tasks.replay import Replay
    run = Replay.read(options, replayed, trace)
    run.compare((a, b), single.replications, plotted, picture.chart)


@takes_options("--profile", "--model", "--gpu", "--batching", "--kv", "--replicas", "--out")
def replay_stream(
    servers: Deployment,
    policy: PolicyOptions,
    cluster: ClusterOptions,
    part: Annotated[TraceOptions, FieldSubset(*STREAMED)],
    replayed: ReplayOptions,
    trace: OptionalTrace = None,
) -> None:
    """Simulate a TRACE as it is read: memory stays flat, quantiles are sketched."""
    from servetwin.app.tasks.replay import Replay
    from servetwin.app.tasks.replay_stream import replay_stream as simulate_stream

    options = ScenarioOptions(servers, policy, cluster, part)
    simulate_stream(Replay.read(options, replayed, trace))
