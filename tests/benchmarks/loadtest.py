"""How late the load tester's client is, and what it costs: ``python -m tests.benchmarks.loadtest``.

Prints a Markdown table. The server (``paced_server``) has one core and the client the others,
where there are several. Errors are the client's figure minus that of the server's own log of the
same request. CPU and memory are those of sending and receiving, to the last answer; of two
processes, CPU per request and chunk is of both, the rest of the busier one. A row in which the
server was late itself, by more than a few milliseconds, says little about the client.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Annotated, Any

import numpy as np
import typer

from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.run.client import LoadOptions, run_load_test
from servetwin.sim.records.columns import Frame
from servetwin.sim.records.run import load_run, machine_facts
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

LEAD_S = 0.5


@dataclass(frozen=True)
class Case:
    """Requests at a constant rate, all alike."""

    name: str
    rate_per_s: float
    requests: int
    tokens: int
    interval_s: float
    processes: int = 1
    ttft_s: float = 0.05

    @property
    def trace(self) -> Trace:
        requests = (
            Request(
                f"r{index}", index / self.rate_per_s, prompt_tokens=8, output_tokens=self.tokens
            )
            for index in range(self.requests)
        )
        return Trace(tuple(requests), self.name)


def cases(seconds: float) -> dict[str, Case]:
    """Return 400 requests/s for so long; streams, all open for so long; the fastest loads."""
    requests, opening_s = round(400 * seconds), 4.0
    tokens = round(50 * (opening_s + seconds))
    return {
        "opening": Case("400 requests/s x 16 tokens at 10 ms", 400.0, requests, 16, 0.010),
        "streams": Case("800 streams x 50 tokens/s", 800 / opening_s, 800, tokens, 0.020),
        "many streams": Case(
            "1,400 streams x 20 tokens/s", 1400 / opening_s, 1400, round(0.4 * tokens), 0.050
        ),
        "two processes": Case(
            "800 streams x 50 tokens/s, 2 processes", 800 / opening_s, 800, tokens, 0.020, 2
        ),
        "2,000 a second": Case(
            "2,000 requests/s x 2 tokens", 2000.0, round(2000 * seconds), 2, 0.010
        ),
        "4,000 a second": Case(
            "4,000 requests/s x 2 tokens", 4000.0, round(4000 * seconds), 2, 0.010
        ),
    }


@contextmanager
def server(case: Case) -> Iterator[tuple[str, IO[str], IO[str]]]:
    """Its URL, and its ends: once the first is closed it tells its log on the second."""
    command = [sys.executable, "-m", "tests.benchmarks.paced_server"]
    process = subprocess.Popen(
        [*command, str(case.ttft_s), str(case.interval_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    pin(process.pid, first=True)
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}", process.stdin, process.stdout
    finally:
        process.kill()
        process.wait()


def pin(pid: int, *, first: bool) -> None:
    """To the first core, or to all but the first."""
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(pid, cores[:1] if first else cores[1:])


def client(case: Case, url: str, folder: Path) -> dict[str, float]:
    """Send the load from this process and say what it took."""
    pin(0, first=False)
    options = LoadOptions(processes=case.processes, lead_s=LEAD_S)
    peaks = [0]
    run = run_load_test(
        probe(url, force_length=False),
        case.trace,
        options=options,
        on_progress=lambda _: peaks.append(peak_kb()),
    )
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    run.save(folder)
    return {"peak_mb": (children if case.processes > 1 else max(peaks)) / 1024}


def peak_kb() -> int:
    """Most memory so far; ``ru_maxrss`` begins with that of the parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def measure(name: str, seconds: float) -> dict[str, Any]:
    """One case, server and client in processes of their own."""
    case = cases(seconds)[name]
    with TemporaryDirectory() as folder, server(case) as (url, stop, said):
        command = [sys.executable, "-m", "tests.benchmarks.loadtest", "--seconds", str(seconds)]
        done = subprocess.run(
            [*command, "--case", name, "--url", url, "--folder", folder],
            capture_output=True,
            text=True,
            check=True,
        )
        stop.close()
        log = json.loads(said.readline())
        run = load_run(Path(folder))
    figures = compare(case, run.requests, log["answers"])
    outcome = run.extra["delivered"]
    cpu_s = outcome["client_cpu_share"] * case.processes * driven_s(run.requests)
    return {
        **figures,
        **json.loads(done.stdout),
        "lag_p99_ms": 1e3 * outcome["lag_p99_s"],
        "cpu_share": outcome["client_cpu_share"],
        "cpu_ms_per_request": 1e3 * cpu_s / case.requests,
        "cpu_us_per_chunk": 1e6 * cpu_s / (case.requests * case.tokens),
        "server_late_p99_ms": log["late_p99_ns"] / 1e6,
        "verdict": outcome["verdict"],
        "event_loop": run.meta["client"]["event_loop"],
    }


def driven_s(requests: Frame) -> float:
    """Seconds from when the client waits for the zero to the last token."""
    return LEAD_S + float(requests["last_token_s"].max())


def compare(case: Case, requests: Frame, log: dict[str, list[int]]) -> dict[str, float]:
    """What arrived, and the client's latencies minus those of the server's log."""
    finished = requests[requests["status"] == "finished"]
    truth_s = np.array([log[name] for name in finished["response_id"]]) / 1e9
    arrivals_s = np.sort([stamps[0] for stamps in log.values()]) / 1e9
    rate_per_s = (len(arrivals_s) - 1) / (arrivals_s[-1] - arrivals_s[0])
    ttft_s = finished["ttft_sent_s"] - (truth_s[:, 1] - truth_s[:, 0])
    itl_s = finished["tpot_s"] - (truth_s[:, 2] - truth_s[:, 1]) / (case.tokens - 1)
    return {
        "finished": len(finished),
        "delivered": rate_per_s / case.rate_per_s * len(finished) / case.requests,
        "ttft_error_ms": 1e3 * ttft_s.mean(),
        "itl_error_ms": 1e3 * itl_s.mean(),
        "itl_error_p99_ms": 1e3 * itl_s.abs().quantile(0.99),
    }


COLUMNS = (
    "delivered", "lag p99 ms", "TTFT error ms", "ITL error ms (p99)", "CPU of a core",
    "CPU ms/request", "CPU us/chunk", "peak MB", "server late p99 ms", "verdict",
)  # fmt: skip


def row(name: str, found: dict[str, Any]) -> str:
    """One line of the table."""
    cells = [
        f"{found['delivered']:.2%}",
        f"{found['lag_p99_ms']:.1f}",
        f"{found['ttft_error_ms']:.2f}",
        f"{found['itl_error_ms']:.3f} ({found['itl_error_p99_ms']:.2f})",
        f"{found['cpu_share']:.0%}",
        f"{found['cpu_ms_per_request']:.2f}",
        f"{found['cpu_us_per_chunk']:.1f}",
        f"{found['peak_mb']:.0f}",
        f"{found['server_late_p99_ms']:.1f}",
        found["verdict"],
    ]
    return f"| {name}, {found['event_loop']} | {' | '.join(cells)} |"


HEADER = f"| load | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}"


def main(
    seconds: Annotated[float, typer.Option(help="Of steady load.")] = 10.0,
    case: Annotated[str | None, typer.Option(help="Only this one.")] = None,
    url: Annotated[str | None, typer.Option(help="Be the client of this server.")] = None,
    folder: Annotated[Path, typer.Option(help="Where that client leaves its run.")] = Path("run"),
) -> None:
    """Print the table, with the date and the machine."""
    known = cases(seconds)
    if url and case:
        typer.echo(json.dumps(client(known[case], url, folder)))
        return
    facts = machine_facts()
    typer.echo(
        f"{time.strftime('%Y-%m-%d')}, {facts['processor']}, {facts['cores']} cores, Python "
        f"{facts['python']}, load average before {os.getloadavg()[0]:.1f}\n\n{HEADER}"
    )
    for name in [case] if case else known:
        typer.echo(row(known[name].name, measure(name, seconds)))


if __name__ == "__main__":
    typer.run(main)
