"""A soak of the engine's server: ``python -m tests.benchmarks.soak``.

Serves one batching x memory x prefix after the other, sends mixed requests with bursts and three
kills of the core, and checks that every request was answered or refused with a reason, that no KV
memory is held afterwards, that memory does not grow after the warm-up, and that no 5xx but 503
came. Prints how long ``/health`` took beside that load.

The most resident memory of the last part of a load is compared with that of the part before, and so
is the least.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import httpx
import numpy as np
import typer

from servetwin.engine.core.step_log import read_step_log
from tests.benchmarks.soak_clients import (
    Ending,
    IdleConnections,
    Target,
    ask_longest,
    exchange,
    one_client,
)

SERVERS = [
    ("static", "contiguous", False), ("continuous", "contiguous", False),
    ("continuous", "paged", False), ("continuous", "paged", True), ("chunked", "paged", True),
    ("prefill-first", "paged", True),
]  # fmt: skip
IDLE_CONNECTIONS = 1000
BURST = 150
"""Requests at once, more than the queue takes."""
BURSTS = 3
AT_A_TIME = 24
MAX_SEQS = 8
WARM_UP_BURSTS = 3
WARM_UP, LAST_PART = 0.4, 0.7
"""Shares of a server's requests: the memory from the first to the second is compared with that of
the rest."""
SAMPLE_EVERY_S, HEALTH_EVERY_S = 0.5, 0.05
MOST_GROWTH = 0.05
KILLED = (1, 3, 4)
"""The servers whose core is killed, half way."""
SMALL_CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32", "LRU_CACHE_CAPACITY": "32"}
"""Torch keeps a kernel for each of the last 1,024 shapes, and takes hours to have met so many; with
these the memory has its final size after the warm-up, so that a leak shows."""


@dataclass
class Soak:
    """One server under load: what became of its requests, and what was wrong."""

    port: int
    pid: int
    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    sent_share: float = 0.0
    """Of the requests, without the bursts."""
    health_ms: list[float] = field(default_factory=list)
    samples_mib: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """By process id: the share sent, and the resident memory at that time."""

    def note(self, client: str, ending: Ending) -> None:
        """Count an ending; remember one that must not be."""
        self.ends[ending.outcome] += 1
        bad = [status for status in ending.statuses if status >= 500 and status != 503]
        if ending.outcome == "LOST" or bad:
            self.wrong.append(f"{client}: {ending.outcome} {ending.statuses}")

    def get(self, path: str) -> httpx.Response:
        """Ask the server for something small."""
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", trust_env=False, timeout=30)

    def facts(self) -> dict[str, Any]:
        """What the core says about itself."""
        found: dict[str, Any] = self.get("/servetwin/engine").json()
        return found

    def resident_mib(self) -> dict[int, float]:
        """Memory of the HTTP process and of the core, by process id."""
        pids = (self.pid, int(self.facts()["process_id"]))
        pages = {pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids}
        return {pid: count * os.sysconf("SC_PAGE_SIZE") / (1 << 20) for pid, count in pages.items()}

    async def load(self, requests: int, seconds: float, seed: int, kill: bool) -> None:
        """Send the requests evenly over so many seconds, with bursts among them."""
        facts = await asyncio.to_thread(self.facts)
        target = Target(self.port, facts["vocab_size"], facts["max_model_len"])
        rngs, places = np.random.default_rng(seed).spawn(requests), asyncio.Semaphore(AT_A_TIME)
        async with IdleConnections(target, IDLE_CONNECTIONS), asyncio.TaskGroup() as running:
            await self.warm_up(np.random.default_rng(seed + 1), target)
            running.create_task(self.watch_memory())
            running.create_task(self.watch_health(target))
            begin_s = time.monotonic()
            for number, rng in enumerate(rngs):
                running.create_task(self.send(rng, target, places))
                if number in _places(requests, BURSTS):
                    running.create_task(self.burst(rng.spawn(BURST), target))
                if kill and number == requests // 2:
                    await asyncio.to_thread(self.kill_core)
                self.sent_share = (number + 1) / requests
                due_s = begin_s + seconds * number / requests
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        await asyncio.to_thread(self.check_the_end)

    async def watch_memory(self) -> None:
        """Sample the memory of both processes until all requests are sent."""
        while self.sent_share < 1:
            with suppress(httpx.HTTPError, OSError, KeyError):  # No core at the moment.
                for pid, now_mib in (await asyncio.to_thread(self.resident_mib)).items():
                    self.samples_mib.setdefault(pid, []).append((self.sent_share, now_mib))
            await asyncio.sleep(SAMPLE_EVERY_S)

    async def watch_health(self, target: Target) -> None:
        """Time ``/health``, each on a connection of its own, with what this process waits for."""
        request = b"GET /health HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n"
        while self.sent_share < 1:
            begin_s = time.perf_counter()
            await exchange(target, request)
            self.health_ms.append((time.perf_counter() - begin_s) * 1e3)
            await asyncio.sleep(HEALTH_EVERY_S)

    async def warm_up(self, rng: np.random.Generator, target: Target) -> None:
        """Let every part of the server take the most memory that it may need."""
        for _ in range(WARM_UP_BURSTS):
            longest = [ask_longest(client, target) for client in rng.spawn(2 * MAX_SEQS)]
            for ending in await asyncio.gather(*longest):
                self.note("ask_longest", ending)
            await self.burst(rng.spawn(BURST), target)

    async def send(
        self, rng: np.random.Generator, target: Target, places: asyncio.Semaphore
    ) -> None:
        """Be one client, when there is a place."""
        async with places:
            self.note(*await one_client(rng, target))

    async def burst(self, rngs: list[np.random.Generator], target: Target) -> None:
        """Be many clients at once, and wait for all."""
        places = asyncio.Semaphore(len(rngs))
        async with asyncio.TaskGroup() as running:
            for rng in rngs:
                running.create_task(self.send(rng, target, places))

    def kill_core(self) -> None:
        """Kill the core, and wait for the next one."""
        pid = self.facts()["process_id"]
        os.kill(pid, signal.SIGKILL)
        self.ends["kills"] += 1
        self.wait_for(
            "/servetwin/engine",
            lambda answer: answer.status_code == 200 and answer.json()["process_id"] != pid,
        )

    def check_the_end(self) -> None:
        """Check that nothing is held and that memory has not grown since the warm-up."""
        self.wait_for("/metrics", lambda answer: all(
            f"vllm:{name}{{" in answer.text and answer.text.split(f"vllm:{name}{{")[1]
            .split("} ")[1].startswith("0.0\n")
            for name in ("kv_cache_usage_perc", "num_requests_running", "num_requests_waiting")
        ))  # fmt: skip
        median, tail = np.percentile(self.health_ms, (50, 99))
        typer.echo(f"  /health: median {median:.1f} ms, p99 {tail:.1f} ms of {len(self.health_ms)}")
        for pid, samples in self.samples_mib.items():
            part = "HTTP" if pid == self.pid else "core"
            before = [mib for share, mib in samples if WARM_UP <= share < LAST_PART]
            last = [mib for share, mib in samples if share >= LAST_PART]
            if samples[0][0] > WARM_UP or not before or not last:
                continue  # A core that was killed, or started after a kill.
            typer.echo(
                f"  {part} process: {min(before):.1f} to {max(before):.1f} MiB after the warm-up, "
                f"{min(last):.1f} to {max(last):.1f} MiB in the last part"
            )
            if any(of(last) > of(before) * (1 + MOST_GROWTH) for of in (min, max)):
                self.wrong.append(f"the memory of the {part} process grew")

    def wait_for(self, path: str, holds: Any) -> None:
        """Wait until an answer is as it should be."""
        for _ in range(300):
            answer = self.get(path)
            if holds(answer):
                return
            time.sleep(0.2)
        self.wrong.append(f"{path} is not as it should be: {answer.text[:2000]}")


@contextmanager
def served(batching: str, kv: str, prefix: bool, step_log: Path) -> Iterator[Soak]:
    """A server of the tiny model."""
    options = [
        "--batching", batching, "--kv", kv, "--prefix-cache" if prefix else "--no-prefix-cache",
        "--queue-limit", "100", "--max-seqs", str(MAX_SEQS), "--kv-tokens", "8192",
        "--max-model-len", "1024", "--step-log", str(step_log),
    ]  # fmt: skip
    command = [
        sys.executable,
        "-m",
        "servetwin.app.cli",
        "serve",
        "--model",
        "tiny",
        "--port",
        "0",
        *options,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **SMALL_CACHES}
    ) as process:
        assert process.stdout
        soak = Soak(int(process.stdout.readline().split("/v1")[0].rpartition(":")[2]), process.pid)
        try:
            yield soak
        finally:
            process.terminate()
            if code := process.wait(60):
                soak.wrong.append(f"the server ended with code {code}")
            steps = read_step_log(step_log)[1]
            if [record.step for record in steps] != list(range(len(steps))):
                soak.wrong.append("the step log does not count its steps")


def main(
    requests: Annotated[int, typer.Option(help="In all.")] = 20_000,
    minutes: Annotated[float, typer.Option(help="At least, in all.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Of the requests.")] = 0,
) -> None:
    """Soak each server; exit with 1 where anything was wrong."""
    wrong, ends = [], Counter[str]()
    with TemporaryDirectory() as folder:
        for number, (batching, kv, prefix) in enumerate(SERVERS):
            name = f"{batching}, {kv}{', prefix cache' if prefix else ''}"
            with served(batching, kv, prefix, Path(folder) / f"{number}.jsonl") as soak:
                share_s = 60 * minutes / len(SERVERS)
                load = soak.load(requests // len(SERVERS), share_s, seed + number, number in KILLED)
                asyncio.run(load)
            typer.echo(f"{name}: {json.dumps(soak.ends)}")
            wrong += [f"{name}: {problem}" for problem in soak.wrong]
            ends += soak.ends
    typer.echo(f"all: {json.dumps(ends)}")
    for problem in wrong[:20]:
        typer.echo(f"WRONG {problem}")
    raise typer.Exit(1 if wrong else 0)


def _places(requests: int, bursts: int) -> set[int]:
    """The requests beside which a burst is sent."""
    return {requests * (number + 1) // (bursts + 1) for number in range(bursts)}


if __name__ == "__main__":
    typer.run(main)
