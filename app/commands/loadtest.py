"""``servetwin loadtest``: send a load to a live endpoint and see what clients see."""

import time
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from servetwin.app.commands.load.load_judges import Judges
from servetwin.app.commands.report import require_plotly, write_html
from servetwin.app.scenario.options.common import (
    SLO,
    GateOptions,
    Json,
    Overwriting,
    RunFolder,
    Seed,
)
from servetwin.app.scenario.options.endpoint import BodyChoice, EndpointOptions
from servetwin.app.scenario.options.groups import Only, takes_options
from servetwin.app.scenario.options.levels import (
    require_one_load_test,
    require_slo,
    require_sweep,
)
from servetwin.app.scenario.options.load import LoadChoice, WorkerOptions
from servetwin.app.scenario.options.policy import PolicyOptions
from servetwin.app.scenario.options.server import ServerOptions

if TYPE_CHECKING:
    from servetwin.sim.records.run_claim import RunClaim


@takes_options(
    "--trace", "--arrivals", "--rate", "--concurrency", "--duration", "--slo", "--against", "--out",
)  # fmt: skip
def loadtest(
    url: Annotated[str, Argument(help="LLM server, with or without /v1.")],
    load: LoadChoice,
    endpoint: EndpointOptions,
    body: BodyChoice,
    gate: GateOptions,
    overwriting: Overwriting,
    workers: WorkerOptions,
    servers: Annotated[ServerOptions, Only("profiles")],
    policy: Annotated[PolicyOptions, Only("preset", "settings")],
    against: Annotated[
        Path | None, Option(help="Run folder of a prediction to compare with.")
    ] = None,
    baseline_url: Annotated[
        str | None,
        Option(
            help="Or judge URL against this server: load tests of both in turns (A/B/A).",
            rich_help_panel=GateOptions.PANEL,
        ),
    ] = None,
    turns: Annotated[
        int,
        Option(
            help="Of --baseline-url: load tests of URL, each between two of the baseline.",
            min=1,
            rich_help_panel=GateOptions.PANEL,
        ),
    ] = 1,
    slo: Annotated[str | None, SLO] = None,
    timeout: Annotated[float, Option(help="Seconds for one request in all.", min=0.001)] = 600,
    html: Annotated[Path | None, Option(help="Also write the report as one HTML file.")] = None,
    live: Annotated[
        Path | None, Option(help="Also write the progress, one JSON line a second.")
    ] = None,
    seed: Seed = 0,
    out: RunFolder = None,
    json: Json = False,
) -> None:
    """Send a trace, generated arrivals or users to URL, and report what every client saw.

    The API key, where one is needed, comes from an environment variable.
    """
    if html:
        require_plotly()
    judges = Judges.parsed(gate, against, baseline_url, slo)
    load, options = replace(load, seed=seed), body.options(seed)
    how = {"timeout_s": timeout, **asdict(workers)}
    if load.sweep.of:
        require_slo(load.sweep, slo)
        require_one_load_test({**judges.given, "--live": live})
        from servetwin.app.commands.loadtest_sweep import Simulator, SweptServer

        with _claimed(overwriting, out) as claim:
            swept = SweptServer(url, load, endpoint, options, judges.limits, how)
            kept = swept.sweep(Simulator(servers, policy), claim, json)
            if html:
                write_html([kept], slo, html)
        return
    require_sweep(
        {"--profile": servers.profiles, "--preset": policy.preset, "--set": policy.settings}
    )
    judges.require_one(html, load.endless)
    from servetwin.app.commands.loadtest_once import prepared

    test = prepared(url, load, endpoint, options, judges, how)
    with _claimed(overwriting, out) as claim:
        folder = claim.begin()
        if test.baseline:
            test.send_in_turns(test.baseline, turns, folder, live, json)
        else:
            test.send(folder, live, json, html)


def _claimed(overwriting: Overwriting, out: Path | None) -> AbstractContextManager["RunClaim"]:
    """Claim the run folder before anything is sent; a new one is named by the time."""
    from servetwin.sim.records.run_claim import claimed_new_run

    if out is not None:
        return overwriting.claimed(out)
    return claimed_new_run(Path("runs") / time.strftime("loadtest-%Y%m%d-%H%M%S"))
