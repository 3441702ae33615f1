"""``servetwin loadtest``: send a load to a live endpoint, or import what another tool recorded."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from servetwin.app.scenario.options.common import Json, Overwriting
from servetwin.app.scenario.options.groups import takes_options
from servetwin.app.scenario.options.load_test import LoadTestOptions
from servetwin.app.scenario.options.trace import Columns
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.program.loopback import is_loopback


@takes_options(
    "--trace", "--arrivals", "--rate", "--concurrency", "--duration", "--slo", "--against", "--out",
)  # fmt: skip
def loadtest(
    url: Annotated[str, Argument(help="LLM server, with or without /v1.")], options: LoadTestOptions
) -> None:
    """Send a trace, generated arrivals or users to URL, and report what every client saw.

    The API key, where one is needed, comes from an environment variable.
    """
    from servetwin.app.tasks.load_test import run

    run(url, options)


@takes_options()
def loadtest_import(
    file: Annotated[
        Path, Argument(metavar="FILE", help="Results of a load tester, stamps, spans, CSV or JSON.")
    ],
    out: Annotated[Path, Option(help="Run folder to write.")],
    overwriting: Overwriting,
    columns: Columns = None,
    as_json: Json = False,
) -> None:
    """Turn a recorded run into a run folder, to be verified, compared or calibrated from.

    Known are vLLM bench serve, SGLang's bench_serving, AIPerf, GuideLLM, inference-perf, stamps of
    vLLM's requests and OpenTelemetry spans. What a format lacks is reported, not guessed.
    """
    from servetwin.app.tasks.recorded_import import import_run

    import_run(file, out, overwriting, columns, as_json)


@takes_options("--upstream", "--out")
def record(
    upstream: Annotated[str, Option(metavar="URL", help="Server that answers.")],
    out: Annotated[Path, Option(help="Trace to write.")],
    overwriting: Overwriting,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8080,
) -> None:
    """Pass requests on to a server until Ctrl-C, and write what replays them, without text.

    A row has times, token counts, salted hashes of prompt blocks, and of sessions and parents where
    clients name them. Prompt tokens are the server's count, else a fourth of the bytes.
    """
    from servetwin.loadtest.capture.recorder import MOST_HELD_BYTES
    from servetwin.loadtest.capture.recorder import record as record_trace
    from servetwin.loadtest.endpoint import server_url
    from servetwin.loadtest.run.event_loop import run_fast

    url = server_url(upstream)
    if url.port == port and is_loopback(url.host) and is_loopback(host):
        raise LoadTestError(f"--upstream {url}: is where this would listen; give another --port")

    def say_ready(at: str) -> None:
        typer.echo(f"recording {url} at {at} (Ctrl-C stops)")

    with overwriting.claimed_output(out, "trace") as path:
        done = run_fast(record_trace(url, path, host, port, say_ready))
    typer.echo(
        f"{out}: {done.requests:,} requests, {done.failed:,} failed, "
        f"{done.prompt_tokens:,} prompt and {done.output_tokens:,} output tokens"
    )
    if done.unheld:
        typer.echo(
            f"{out}: {done.unheld:,} more passed unrecorded: the bodies under way were more than "
            f"{MOST_HELD_BYTES / 2**20:,.0f} MiB"
        )
    if done.error:
        typer.echo(f"{out}: rows are missing: {done.error}", err=True)
        raise typer.Exit(1)
