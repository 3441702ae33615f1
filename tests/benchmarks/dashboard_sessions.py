"""How long users wait when many open the dashboard at once, each with a scenario of their own:
``python -m tests.benchmarks.dashboard_sessions``.

Opens sessions over websockets, as browsers do, each on another scenario, and prints the time from
opening each to its first answer (verdict and metrics) and to its last (all intervals). With
``--alike`` all sessions have the same scenario. With ``--one`` a session is opened alone before,
which also loads what the server loads once.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from tests.support.dashboard_app import served_dashboard
from tests.support.dashboard_session import Session, open_session

_BATCHING = ("continuous", "chunked")


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


async def wait_for_answers(url: str, query: str, limit_s: float) -> Waited:
    started_s = time.perf_counter()
    async with asyncio.timeout(limit_s), open_session(url, query) as session:
        first_s = await _until(session, lambda: session.metrics > 0) - started_s
        all_s = await _until(session, lambda: session.is_finished) - started_s
    return Waited(query, first_s, all_s)


async def _until(session: Session, reached: Any) -> float:
    while not reached():
        await session.receive()
    return time.perf_counter()


async def _all_at_once(url: str, queries: list[str], limit_s: float) -> list[Waited]:
    return await asyncio.gather(*(wait_for_answers(url, query, limit_s) for query in queries))


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
    requests: Annotated[int, typer.Option(min=10, max=100_000, help="Of each scenario.")] = 2_000,
    limit_s: float = 600.0,
) -> None:
    """Print what each session waited."""
    with TemporaryDirectory() as folder, served_dashboard(Path(folder)) as dashboard:
        if one:
            waited = asyncio.run(wait_for_answers(dashboard.url, "rate=3", limit_s))
            typer.echo(f"one session alone: {waited.first_s:.2f} s to its first answer")
        queries = [scenario_link(0 if alike else place, requests) for place in range(sessions)]
        before_s = cpu_s()
        found = asyncio.run(_all_at_once(dashboard.url, queries, limit_s))
        used_s = cpu_s() - before_s
    typer.echo(f"{'first answer, s':>15} {'all, s':>8}  scenario")
    for waited in sorted(found, key=lambda each: each.first_s):
        typer.echo(f"{waited.first_s:15.2f} {waited.all_s:8.2f}  {waited.query}")
    last_s = max(waited.first_s for waited in found)
    typer.echo(
        f"{sessions} sessions: the last first answer after {last_s:.2f} s; CPU {used_s:.1f} s"
    )


if __name__ == "__main__":
    typer.run(main)
