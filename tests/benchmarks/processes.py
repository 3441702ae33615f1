"""What one client process can take at most, and two: ``python -m tests.benchmarks.processes``.

64 users without think time against a server that costs next to nothing, so that the client is the
limit. Prints a Markdown table; the two are measured in turn, and the median of the pairs counts.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

USERS = 64


@contextmanager
def server() -> Iterator[str]:
    """The URL of a canned server."""
    command = [sys.executable, "-m", "tests.benchmarks.canned_server"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


def measure(url: str, processes: int, seconds: float) -> dict[str, Any]:
    """The summary of one closed loop."""
    with TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "servetwin", "loadtest", url, "--concurrency", str(USERS),
            "--duration", str(seconds), "--prompt-tokens", "8", "--output-tokens", "16",
            "--processes", str(processes), "--json", "--out", str(Path(folder) / "run"),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(
    seconds: Annotated[float, typer.Option(help="Of each load.")] = 6.0,
    pairs: Annotated[int, typer.Option(help="Measured in turn.")] = 3,
) -> None:
    """Print requests per second of one process and of two, and their ratio."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    with server() as url:
        for _ in range(pairs):
            for processes, found in rates.items():
                found.append(measure(url, processes, seconds)["request_throughput_per_s"])
    ratios = [two / one for one, two in zip(*rates.values(), strict=True)]
    typer.echo("| processes | requests/s | tokens/s |\n|---|---|---|")
    for processes, found in rates.items():
        rate_per_s = statistics.median(found)
        typer.echo(f"| {processes} | {rate_per_s:.0f} | {16 * rate_per_s:.0f} |")
    typer.echo(f"\nratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    typer.run(main)
