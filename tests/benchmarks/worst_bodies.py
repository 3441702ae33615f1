"""What the worst bodies do to a server: ``python -m tests.benchmarks.worst_bodies``.

Clients, in a process of their own, send the bodies that cost a server most as fast as they are
answered, while one client asks ``/health``. Prints how long that took, which answers the bodies
got, and the memory of the server.
"""

import multiprocessing
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Annotated

import httpx
import numpy as np
import typer

WORST = {
    "half a million booleans": b'{"prompt":[' + b"true," * 500_000 + b"true]}",
    "half a million ids": b'{"prompt":[' + b"300," * 500_000 + b"300]}",
    "a prompt of 8 MB": b'{"prompt":"' + b"a" * 8_000_000 + b'"}',
    "escapes": b'{"prompt":"' + b"\\u00e9" * 1_300_000 + b'"}',
    "a million objects": b'{"prompt":"a","x":[' + b'{"a":1},' * 1_000_000 + b"1]}",
    "empty messages": b'{"messages":[' + b"{}," * 2_000_000 + b"{}]}",
    "empty parts": b'{"messages":[{"role":"user","content":[' + b"{}," * 2_000_000 + b"{}]}]}",
    "deep nesting": b"[" * 8_000_000,
    "a long number": b'{"prompt":"a","seed":' + b"9" * 8_000_000 + b"}",
    "many keys": b"{" + b",".join(b'"k%d":1' % i for i in range(600_000)) + b"}",
    "31 MB": b'{"prompt":"' + b"a" * 31_000_000 + b'"}',
    "just small enough for the loop": b'{"messages":[' + b'{"role":"user","content":[]},' * 2200
    + b"1]}",
}  # fmt: skip


START_S = 2.0
"""What the clients need before they send."""


@contextmanager
def server() -> Iterator[tuple[int, int]]:
    """A bundled engine of the tiny model; its port and its process."""
    command = [sys.executable, "-m", "servetwin", "serve", "--model", "tiny", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        line = process.stdout.readline()
        try:
            yield int(line.split("/v1")[0].rpartition(":")[2]), process.pid
        finally:
            process.terminate()


def send_worst(port: int, first: int, end_s: float, found: Counter[str]) -> None:
    """Send one worst body after another; count the answers by status."""
    bodies = list(WORST.items())
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
        number = first
        while time.monotonic() < end_s:
            name, body = bodies[number % len(bodies)]
            path = "/v1/chat/completions" if b'"messages"' in body[:20] else "/v1/completions"
            try:
                status = str(client.post(path, content=body).status_code)
            except httpx.TransportError as error:
                status = type(error).__name__
            found[f"{name}: {status}"] += 1
            number += 1


def send_all(port: int, clients: int, seconds: float, answers: "Queue[Counter[str]]") -> None:
    """Send worst bodies from so many clients; hand over the answers."""
    found, end_s = Counter[str](), time.monotonic() + seconds
    senders = [
        threading.Thread(target=send_worst, args=(port, number, end_s, found))
        for number in range(clients)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    answers.put(found)


def ask_health(port: int, end_s: float) -> list[float]:
    """Seconds that ``/health`` took, each time on a connection of its own."""
    request = b"GET /health HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n"
    lasted_s = []
    while time.monotonic() < end_s:
        begin_s = time.monotonic()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(request)
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        lasted_s.append(time.monotonic() - begin_s)
        time.sleep(0.02)
    return lasted_s


def resident_mib(pid: int) -> float:
    """Memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main(
    clients: Annotated[int, typer.Option(help="How many send the worst bodies.")] = 50,
    seconds: Annotated[float, typer.Option(help="For how long.")] = 20.0,
) -> None:
    """Print percentiles of ``/health`` while clients send the worst bodies."""
    with server() as (port, pid):
        quiet = ask_health(port, time.monotonic() + 2)
        context = multiprocessing.get_context("spawn")
        answers: Queue[Counter[str]] = context.Queue()
        senders = context.Process(target=send_all, args=(port, clients, seconds, answers))
        senders.start()
        busy = ask_health(port, time.monotonic() + seconds + START_S)
        found = answers.get()
        senders.join()
        peak_mib = resident_mib(pid)
    typer.echo("| /health | n | p50 ms | p99 ms | longest ms |\n|---|---|---|---|---|")
    for name, lasted_s in (("alone", quiet), (f"beside {clients} clients", busy)):
        ms = [1000 * value for value in lasted_s]
        p99 = float(np.percentile(ms, 99))
        median = statistics.median(ms)
        typer.echo(f"| {name} | {len(ms)} | {median:.1f} | {p99:.1f} | {max(ms):.1f} |")
    typer.echo(f"\nmemory of the HTTP process at most {peak_mib:.0f} MiB; answers:")
    for answer, count in sorted(found.items()):
        typer.echo(f"- {answer} ({count})")


if __name__ == "__main__":
    typer.run(main)
