"""Soak a server: ``python -m tests.fuzz.soak --minutes 5 [--mock] [--out FILE]``.

Impatient clients send right and wrong requests, leave in the middle, and wait for what they did not
leave; the core of the bundled engine is killed at random moments. No request may be lost, at the
end nothing runs and no KV memory is held, and memory and open files do not grow. Everything is on
the loopback and ends by itself.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.fuzz.api_bodies import draw
from tests.support.mock_process import mock_process, servetwin_process

CLIENTS = 24
KILLS = 3
LOST_S = 60.0
"""A request that has no end after so long is lost."""
HEALTH_S = 0.05
SAMPLE_S = 2.0
PAUSE_S = 0.05
MOST_GROWTH = 0.15
"""Of memory, from the middle third of the samples to the last."""
MOST_FILES = CLIENTS
"""By which open files may grow likewise: connections that are not closed yet."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Seen:
    """What became of the requests, how long ``/health`` took, and what the server held."""

    outcomes: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    health_s: list[float] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    kills: int = 0

    def note(self, process_id: int) -> None:
        """Note the memory and the open files of a process."""
        pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
        self.memory_mib.append(pages * _PAGE / (1 << 20))
        self.files.append(len(os.listdir(f"/proc/{process_id}/fd")))

    def growth(self, of: list[Any]) -> float:
        """Return the last third's median beside the middle third's."""
        third = len(of) // 3
        middle, last = float(np.median(of[third : 2 * third])), float(np.median(of[2 * third :]))
        return last - middle

    def problems(self, left: dict[str, float]) -> list[str]:
        """Return what went wrong; ``left`` are the server's gauges at the end."""
        memory = self.growth(self.memory_mib)
        flat = memory <= MOST_GROWTH * float(np.median(self.memory_mib))
        found = {
            f"{len(self.lost)} lost, such as {self.lost[:3]}": bool(self.lost),
            f"memory grew by {memory:.0f} MiB": not flat,
            f"files grew by {self.growth(self.files)}": self.growth(self.files) > MOST_FILES,
            f"left at the end: {left}": any(left.values()),
        }
        return [text for text, is_so in found.items() if is_so]


@contextmanager
def bundled_server() -> Iterator[tuple[int, str]]:
    """Serve the engine with a tiny model: its process and its URL."""
    process = servetwin_process(
        "serve", "--model", "tiny", "--port", 0, "--max-restarts", 2 * KILLS
    )
    assert process.stdout
    try:
        yield process.pid, process.stdout.readline().split()[3].removesuffix("/v1")
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@contextmanager
def mock_server() -> Iterator[tuple[int, str]]:
    """Serve a mock: its process and its URL."""
    options = ("--model", "tiny", "--ttft-ms", 20, "--itl-ms", 5)
    with mock_process(*options, "--fault", "cut:every=50") as (process, url):
        yield process.pid, url.removesuffix("/v1")


def request(rng: np.random.Generator) -> tuple[str, bytes]:
    """Return a path and a body: a right one, a large one, or one of the fuzzer's."""
    kind = rng.random()
    if kind < 0.1:
        path, _, body = draw(rng).partition(b"\n")
        return path.decode(), body.replace(b'"fake"', b'"tiny"')
    fields: dict[str, Any] = {
        "prompt": "a " * int(rng.integers(1, 60)), "max_tokens": int(rng.integers(1, 80)),
        "stream": bool(rng.random() < 0.7), "n": int(rng.integers(1, 3)),
    }  # fmt: skip
    if kind < 0.12:
        fields["prompt"] = "a" * int(rng.integers(100_000, 2_000_000))
    return "/v1/completions", json.dumps(fields).encode()


async def impatient(client: httpx.AsyncClient, seed: list[int], end_s: float, seen: Seen) -> None:
    """Send requests one after another until ``end_s``; leave a third of them in the middle."""
    rng = np.random.default_rng(seed)
    while time.monotonic() < end_s:
        path, body = request(rng)
        patience_s = float(rng.exponential(0.3)) if rng.random() < 0.33 else LOST_S
        try:
            async with asyncio.timeout(patience_s):
                seen.outcomes[await outcome(client, path, body)] += 1
        except TimeoutError:
            if patience_s == LOST_S:
                seen.lost.append(f"{path} {body[:200]!r}")
            seen.outcomes["left"] += 1
        except httpx.TransportError as error:
            seen.outcomes[type(error).__name__] += 1
        await asyncio.sleep(PAUSE_S)


async def outcome(client: httpx.AsyncClient, path: str, body: bytes) -> str:
    """Return how a request ended, as its client sees it."""
    async with client.stream("POST", path, content=body) as response:
        text = (await response.aread()).decode()
    if response.status_code != 200:
        return str(response.status_code)
    if not response.headers["content-type"].startswith("text/event-stream"):
        return "200"
    events = [event for event in text.split("\n\n") if event]
    if events[-1] == "data: [DONE]":
        return "200 stream"
    return "error event" if '"error"' in events[-1] else "cut"


def health_times_s(url: str, seconds: float) -> list[float]:
    """Time ``/health`` again and again; in a process of its own, whose clients delay nothing."""
    times_s, end_s = [], time.monotonic() + seconds
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        while time.monotonic() < end_s:
            begun_s = time.perf_counter()
            client.get("/health")
            times_s.append(time.perf_counter() - begun_s)
            time.sleep(HEALTH_S)
    return times_s


async def sample(process_id: int, seen: Seen) -> None:
    """Note the memory and the open files of the HTTP process again and again."""
    while True:
        seen.note(process_id)
        await asyncio.sleep(SAMPLE_S)


async def kill_cores(client: httpx.AsyncClient, seconds: float, seed: int, seen: Seen) -> None:
    """Kill the core at random moments of the middle of the soak."""
    moments = np.sort(np.random.default_rng(seed).uniform(0.1, 0.85, KILLS)) * seconds
    for pause_s in np.diff(moments, prepend=0.0):
        await asyncio.sleep(float(pause_s))
        answer = await client.get("/servetwin/engine")
        if answer.status_code == 200:  # else it starts again after the last kill
            os.kill(answer.json()["process_id"], signal.SIGKILL)
            seen.kills += 1


async def soak(process_id: int, url: str, minutes: float, seed: int, *, is_mock: bool) -> Seen:
    """Let the clients loose, and return what was seen."""
    seen, seconds = Seen(), 60 * minutes
    end_s = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=None)
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    async with (
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=None, limits=limits) as client,
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as watcher,
    ):
        sampler = asyncio.create_task(sample(process_id, seen))
        loop = asyncio.get_running_loop()
        health = loop.run_in_executor(pool, health_times_s, url, seconds)
        jobs = [impatient(client, [seed, number], end_s, seen) for number in range(CLIENTS)]
        if not is_mock:
            jobs.append(kill_cores(watcher, seconds, seed, seen))
        await asyncio.gather(*jobs)
        sampler.cancel()
        seen.health_s = await health
    pool.shutdown()
    return seen


GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")


def gauges(url: str) -> dict[str, float]:
    """Return what the engine holds, once it is idle or after 30 s."""
    for _ in range(60):
        text = httpx.get(f"{url}/metrics", trust_env=False, timeout=30).text
        rows = [line for line in text.splitlines() if not line.startswith("#")]
        found = {
            name: float(row.split()[-1]) for name in GAUGES for row in rows if f":{name}" in row
        }
        if not any(found.values()):
            break
        time.sleep(0.5)
    return found


def report(seen: Seen) -> str:
    """Return the figures."""
    p50, p99 = np.percentile(seen.health_s, [50, 99]) * 1e3
    held: dict[str, list[Any]] = {"MiB": seen.memory_mib, "files": seen.files}
    lines = [
        f"{seen.outcomes.total()} requests, {len(seen.lost)} lost, {seen.kills} cores killed",
        f"outcomes: {dict(seen.outcomes.most_common())}",
        f"/health: {len(seen.health_s)} times, p50 {p50:.1f} ms, p99 {p99:.1f} ms",
        *(
            f"{name}: first {of[0]:.0f}, largest {max(of):.0f}, last {of[-1]:.0f}, "
            f"last third beside the middle {seen.growth(of):+.1f}"
            for name, of in held.items()
        ),
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
    ]
    return "\n".join(lines)


def main() -> int:
    """Soak one server as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--mock", action="store_true")
    options = parser.parse_args()
    server = mock_server() if options.mock else bundled_server()
    with server as (process_id, url):
        job = soak(process_id, url, options.minutes, options.seed, is_mock=options.mock)
        seen = asyncio.run(job)
        left = {} if options.mock else gauges(url)
    problems = seen.problems(left)
    sys.stdout.write("\n".join([f"seed {options.seed}", report(seen), f"left: {left}", *problems]))
    sys.stdout.write("\n")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
