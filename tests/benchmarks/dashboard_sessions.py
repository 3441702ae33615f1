"""How long users wait when many open the dashboard at once, each with a scenario of their own:
``python -m tests.benchmarks.dashboard_sessions``.

Opens sessions over websockets, as browsers do, each on another scenario, and prints the time from
opening each to its first answer (verdict and metrics) and to its last (all intervals). With
``--alike`` all sessions have the same scenario. With ``--one`` a session is opened alone before,
which also loads what the server loads once. With ``--no-intervals`` all sessions close once each
has its first answer, and what the server computes 2 s later is printed.
"""

import asyncio
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from tests.support.dashboard_app import served_dashboard
from tests.support.dashboard_session import Session, open_session

_BATCHING = ("continuous", "chunked")
_SOON_S = 2


@dataclass(frozen=True)
class Waited:
    """What a session waited for its answers."""

    query: str
    first_s: float
    all_s: float


def scenario_link(place: int, requests: int) -> str:
    """The link of the session in that place: another rate, length and scheduler each."""
    return urlencode(
        {
            "requests": requests,
            "rate": 4 + place / 2,
            "prompt_tokens": 400 + 10 * place,
            "batching": _BATCHING[place % len(_BATCHING)],
        }
    )


@dataclass
class Visit:
    """Sessions that open together; without ``intervals`` they close once all have an answer."""

    url: str
    intervals: bool
    limit_s: float
    answered: asyncio.Barrier = field(init=False)

    async def all_at_once(self, queries: list[str]) -> list[Waited]:
        self.answered = asyncio.Barrier(len(queries))
        return await asyncio.gather(*map(self.wait_for_answers, queries))

    async def wait_for_answers(self, query: str) -> Waited:
        started_s = time.perf_counter()
        async with asyncio.timeout(self.limit_s), open_session(self.url, query) as session:
            first_s = await _until(session, lambda: session.metrics > 0) - started_s
            if not self.intervals:
                await self.answered.wait()
                return Waited(query, first_s, math.nan)
            all_s = await _until(session, lambda: session.is_finished) - started_s
        return Waited(query, first_s, all_s)


async def _until(session: Session, reached: Any) -> float:
    while not reached():
        await session.receive()
    return time.perf_counter()


def cpu_s() -> float:
    """CPU seconds so far of the dashboard and of its processes."""
    ticks = 0
    for pid in _descendants(os.getpid()):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from _descendants(child)


def main(
    sessions: Annotated[int, typer.Option(min=1)] = 20,
    alike: bool = False,
    one: bool = False,
    intervals: bool = True,
    requests: Annotated[int, typer.Option(min=10, max=100_000, help="Of each scenario.")] = 2_000,
    limit_s: float = 600.0,
) -> None:
    """Print what each session waited."""
    queries = [scenario_link(0 if alike else place, requests) for place in range(sessions)]
    with TemporaryDirectory() as folder, served_dashboard(Path(folder)) as dashboard:
        visit = Visit(dashboard.url, intervals, limit_s)
        if one:
            (alone,) = asyncio.run(visit.all_at_once(["rate=3"]))
            typer.echo(f"one session alone: {alone.first_s:.2f} s to its first answer")
        before_s = cpu_s()
        found = asyncio.run(visit.all_at_once(queries))
        used_s = cpu_s() - before_s
        if not intervals:
            time.sleep(_SOON_S)
            before_s = cpu_s()
            time.sleep(_SOON_S)
            idle = (cpu_s() - before_s) / _SOON_S
            typer.echo(f"{_SOON_S} s after all had closed: {idle:.1%} of a core")
    typer.echo(f"{'first answer, s':>15} {'all, s':>8}  scenario")
    for waited in sorted(found, key=lambda each: each.first_s):
        typer.echo(f"{waited.first_s:15.2f} {waited.all_s:8.2f}  {waited.query}")
    last_s = max(waited.first_s for waited in found)
    typer.echo(
        f"{sessions} sessions: the last first answer after {last_s:.2f} s; CPU {used_s:.1f} s"
    )


if __name__ == "__main__":
    typer.run(main)
