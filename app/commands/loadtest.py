"""``servetwin loadtest``: send a load to a live endpoint, or import what another tool recorded."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from servetwin.app.scenario.options.common import Json, Overwriting
from servetwin.app.scenario.options.groups import takes_options
from servetwin.app.scenario.options.load_test import LoadTestOptions
from servetwin.app.scenario.options.trace import Columns


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
