"""How well an endpoint is predicted that is known by its URL alone.

``python -m tests.benchmarks.black_box`` serves each server of ``SERVERS`` in a process of its own,
calibrates it as a black box, predicts a scaled Azure window at 50 % and 70 % of capacity, runs load
tests, and prints a table. About 12 minutes per server; let nothing else run.
"""

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from servetwin.app.calibration.black_box.calibration import BlackBoxCalibrator
from servetwin.app.calibration.black_box.sender import Allowance
from servetwin.app.verdict.claims import MetricComparison
from servetwin.app.verdict.verification import (
    BLACK_BOX_LIMITS,
    BLACK_BOX_UTILISATIONS,
    Level,
    Plan,
    Verification,
)
from servetwin.app.verdict.verifier import Verifier
from servetwin.loadtest.endpoint import Endpoint, probe
from servetwin.sim.records.run import machine_facts
from servetwin.workloads.reading import read_trace
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import limit, scale_tokens, window
from tests.benchmarks.simulator import CONVERSATION

SERVERS = {
    "simulated": "--simulated base-cpu",
    "continuous": "--model base",
    "chunked+prefix": "--model base --batching chunked --prefix-cache",
}
COMMAND = [
    sys.executable,
    "-c",
    "from servetwin.app.cli import main; main()",
    "serve",
    "--port",
    "0",
]
METRICS = ("output_throughput_tokens_per_s", "tpot_s.mean", "ttft_s.mean")


def azure_window(requests: int = 200) -> Trace:
    """The window of the README's table: its first requests, a tenth of the tokens."""
    found = limit(window(read_trace(CONVERSATION), 600.0, float("inf")), requests)
    return scale_tokens(found, prompt=0.1, output=0.1)


@contextmanager
def served(arguments: str) -> Iterator[str]:
    """The URL of ``servetwin serve ARGUMENTS``, for as long as it lasts."""
    command = [*COMMAND, *shlex.split(arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            words = next(line for line in process.stdout if line.startswith("serving")).split()
            yield words[words.index("at") + 1]
        finally:
            process.send_signal(signal.SIGINT)


def table_head() -> list[str]:
    """The lines above the rows."""
    head = ("server", "load", "rate", "throughput tokens/s", "TPOT ms", "TTFT ms", "", "open")
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]


def row(name: str, found: Verification, level: Level) -> str:
    """One line of the table."""
    by_name = {metric.metric: metric for metric in level.claims.comparison.metrics}
    cells = [
        name,
        f"{100 * level.prediction.utilisation:.0f} %",
        f"{level.trace.rate_per_s:.2f}/s",
        *(_cell(by_name[metric]) for metric in METRICS),
        level.claims.comparison.outcome,
        ", ".join(found.identified.get("not identified", {})) or "-",
    ]
    return f"| {' | '.join(cells)} |"


def _cell(metric: MetricComparison) -> str:
    assert metric.predicted is not None
    assert metric.measured is not None
    scale = 1e3 if "_s." in metric.metric else 1.0
    ends = (metric.error_low, metric.error_high)
    interval = " to ".join("-" if end is None else f"{100 * end:+.1f}" for end in ends)
    error = "-" if metric.error is None else f"{100 * metric.error:+.1f} %"
    values = f"{scale * metric.predicted.value:.1f} / {scale * metric.measured:.1f}"
    return f"{values} ({error}, {interval})"


def say(line: str) -> None:
    """A line of the table, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def progress(line: str) -> None:
    """What is being done."""
    typer.echo(line, err=True)


def verify_black_box(
    endpoint: Endpoint,
    trace: Trace,
    repeats: int,
    max_s: float = 300.0,
    max_requests: int = 400,
    utilisations: tuple[float, ...] = BLACK_BOX_UTILISATIONS,
) -> Verification:
    """Verify an endpoint of which nothing but the URL is known."""
    plan = Plan(utilisations, repeats, limits=BLACK_BOX_LIMITS)
    calibrator = BlackBoxCalibrator(
        endpoint, Allowance(max_s, max_requests), report_progress=progress
    )
    return Verifier(calibrator, trace, plan, progress).run()


def main(
    server: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(SERVERS)}.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the runs.")] = None,
    repeats: int = 5,
) -> None:
    """Verify each server as a black box and print the table."""
    trace = azure_window()
    facts: dict[str, Any] = machine_facts()
    say(f"{time.strftime('%Y-%m-%d')}, {facts['cores']} x {facts['processor']}")
    say("\n".join(table_head()))
    for name in server or SERVERS:
        with served(SERVERS[name]) as url:
            found = verify_black_box(probe(url), trace, repeats)
        if out:
            found.save(out / name)
        say("\n".join(row(name, found, level) for level in found.levels))


if __name__ == "__main__":
    typer.run(main)
