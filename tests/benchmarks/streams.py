"""What a request of a stream costs, part by part, and the peak of memory.

``python -m tests.benchmarks.streams`` makes a trace of 10 million requests and replays it in a
process of its own; ``--requests`` makes a smaller one.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer

from servetwin.workloads.streams.streamed_trace import StreamedTrace
from servetwin.workloads.streams.trace_file import TraceFile
from tests.benchmarks.simulator import LENGTHS, PROFILE, event_s

REQUESTS = 10_000_000
RATE_PER_S = 20.0
PIECE = 100_000
_REPLAY = (
    "import resource, sys\n"
    "from servetwin.app.cli import main\n"
    "try: main()\n"
    "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
)


def azure_rows(requests: int, rate_per_s: float = RATE_PER_S) -> Iterator[str]:
    """Yield the text of an Azure trace with Poisson arrivals and log-normal lengths."""
    yield "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    rng, now_us = np.random.default_rng(0), 0.0
    begin = np.datetime64("2024-05-10T00:00:00", "us")
    for first in range(0, requests, PIECE):
        count = min(PIECE, requests - first)
        at_us = now_us + np.cumsum(rng.exponential(1e6 / rate_per_s, count))
        now_us = float(at_us[-1])
        stamps = np.char.replace((begin + at_us.astype("timedelta64[us]")).astype(str), "T", " ")
        lengths = (column.tolist() for column in LENGTHS.sample(count, rng))
        rows = zip(stamps.tolist(), *lengths, strict=True)
        yield "".join(f"{stamp},{prompt},{output}\n" for stamp, prompt, output in rows)


def write_rows(path: Path, requests: int) -> None:
    """Write such a trace."""
    with path.open("w") as file:
        file.writelines(azure_rows(requests))


def reading_s(path: Path) -> tuple[float, float]:
    """Return the processor seconds of the first reading, and of making all requests."""
    started_s = time.process_time()
    trace = StreamedTrace.open(TraceFile(path))
    surveyed_s = time.process_time()
    for _ in trace:
        pass
    return surveyed_s - started_s, time.process_time() - surveyed_s


def streamed_replay(path: Path, out: Path | None = None, *options: str) -> dict[str, float]:
    """Replay a trace in a process of its own; its figures, its seconds and its peak of memory."""
    kept = [] if out is None else ["--out", str(out)]
    arguments = ["replay", "stream", str(path), "--profile", PROFILE.name, "--json"]
    command = [sys.executable, "-c", _REPLAY, *arguments, *kept, *options]
    before_s, started_s = event_s(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    elapsed_s = time.perf_counter() - started_s
    bare_s = (before_s + event_s()) / 2
    summary = json.loads(done.stdout)
    requests = summary["requests"]["finished"]
    return {
        "requests": requests,
        "seconds": elapsed_s,
        "events_per_request": elapsed_s / requests / bare_s,
        "peak_bytes": 1024 * int(done.stderr.split()[-1]),
    }


HEADER = f"{'requests':>12}{'us each':>10}{'events':>10}{'seconds':>10}{'peak MB':>10}   streamed"


def line(figures: dict[str, float]) -> str:
    """Return one line of the table."""
    requests, seconds = figures["requests"], figures["seconds"]
    return (
        f"{requests:>12,}{1e6 * seconds / requests:>10.1f}{figures['events_per_request']:>10.1f}"
        f"{seconds:>10.1f}{figures['peak_bytes'] / 1e6:>10.0f}"
    )


def measure(requests: int, keep: bool = True) -> dict[str, float]:
    """Write a trace, replay it, and remove all of it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        write_rows(path, requests)
        return streamed_replay(path, Path(folder) / "run" if keep else None)


def main(
    requests: Annotated[int, typer.Option(help="How many.")] = REQUESTS,
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Write a run folder.")] = True,
) -> None:
    """Print what reading and replaying a stream cost."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        write_rows(path, requests)
        surveyed_s, made_s = reading_s(path)
        typer.echo(f"first reading {requests / surveyed_s:,.0f} rows/s, of processor time")
        typer.echo(f"requests made {requests / made_s:,.0f} /s, of processor time")
        typer.echo(HEADER)
        out = Path(folder) / "run"
        typer.echo(line(streamed_replay(path, out if keep else None)))
        if keep:
            kept_bytes = sum(file.stat().st_size for file in out.iterdir())
            typer.echo(f"run folder {kept_bytes / requests:.0f} bytes a request")


if __name__ == "__main__":
    typer.run(main)
