"""What reading answers costs: ``python -m tests.benchmarks.loadtest_parsing``.

Prints the microseconds that an event takes when all is read at the end, then how long a load test
needs from Ctrl-C to its exit after so many chunks at 800 streams x 50 tokens/s. The server has one
core and the client the others, where there are several.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from servetwin.loadtest.http.exchange import Exchange
from servetwin.loadtest.http.recorded_reads import RecordedReads
from servetwin.loadtest.stream.stream_reader import read_stream
from servetwin.sim.records.run import load_run, machine_facts
from servetwin.workloads.readers.native import write_trace
from tests.benchmarks.loadtest import Case, cases, pin, server

ROUNDS = 5


def answers(count: int, events: int) -> list[Exchange]:
    """Recorded answers of one event per read, about 200 bytes each."""
    exchanges = []
    for _ in range(count):
        reads = RecordedReads()
        for index in range(events):
            reads.add(index, event(f" token{index}", "length" if index == events - 1 else None))
        exchanges.append(Exchange(0, reads))
    return exchanges


def event(text: str, finish: str | None) -> bytes:
    choices = [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}]
    fields = {"id": "cmpl-0123456789abcdef", "object": "text_completion", "created": 1_700_000_000}
    return b"data: " + json.dumps({**fields, "model": "m", "choices": choices}).encode() + b"\n\n"


def us_per_event(count: int = 200, events: int = 250) -> float:
    """The best of a few rounds, in CPU time."""
    took_s = []
    for _ in range(ROUNDS):
        recorded = answers(count, events)
        began_s = time.process_time()
        for exchange in recorded:
            read_stream(exchange)
        took_s.append(time.process_time() - began_s)
    return 1e6 * min(took_s) / (count * events)


def endless(chunks: int) -> Case:
    """Streams that are all open, and far from their end, after so many chunks."""
    case = cases(1.0)["streams"]
    return replace(case, tokens=3 * chunks // case.requests)


def cpu_s(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def after_ctrl_c(chunks: int, options: Sequence[str]) -> tuple[int, float, float]:
    """Chunks received, and seconds from Ctrl-C to the exit: on the clock, and of CPU time."""
    case = endless(chunks)
    opening_s = case.requests / case.rate_per_s
    with TemporaryDirectory() as place, server(case) as (url, stop, _):
        trace, folder = Path(place) / "t.jsonl", Path(place) / "run"
        write_trace(case.trace, trace)
        command = [
            sys.executable,
            "-m",
            "servetwin.app.cli",
            "loadtest",
            url,
            "--trace",
            str(trace),
        ]
        process = subprocess.Popen(
            [*command, "--no-force-length", "--out", str(folder), *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        pin(process.pid, first=False)
        assert process.stderr
        process.stderr.readline()  # How the endpoint is asked: the load starts within a second.
        time.sleep(1.0 + opening_s / 2 + chunks * case.interval_s / case.requests)
        used_s, began_s = cpu_s(process.pid), time.perf_counter()
        process.send_signal(signal.SIGINT)
        stop.close()  # Or the server would complain of every token that is not taken.
        _, _, usage = os.wait4(process.pid, 0)
        took_s = time.perf_counter() - began_s
        chunk_s = load_run(folder).requests["chunk_s"]
        return int(chunk_s.map(len).sum()), took_s, usage.ru_utime + usage.ru_stime - used_s


def main(
    chunks: Annotated[int, typer.Option(help="Received before Ctrl-C.")] = 1_000_000,
    processes: Annotated[int, typer.Option(help="Of the client.")] = 1,
) -> None:
    """Print both, with the date and the machine."""
    facts = machine_facts()
    typer.echo(
        f"{time.strftime('%Y-%m-%d')}, {facts['processor']}, {facts['cores']} cores, Python "
        f"{facts['python']}, load average before {os.getloadavg()[0]:.1f}"
    )
    typer.echo(f"an event takes {us_per_event():.1f} us to read")
    received, took_s, busy_s = after_ctrl_c(chunks, ["--processes", str(processes)])
    typer.echo(
        f"{received} chunks received; {took_s:.2f} s from Ctrl-C to the exit, "
        f"{busy_s:.2f} s of CPU time"
    )


if __name__ == "__main__":
    typer.run(main)
