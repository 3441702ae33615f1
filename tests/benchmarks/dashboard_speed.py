"""How long a reader waits for a number: ``python -m tests.benchmarks.dashboard_speed``.

In Chromium, medians of ten each: from opening Explore on a server that has just begun to listen
to its first figures; from a move of the slider to other figures, with 2,000 and 20,000 generated
requests and with an uploaded trace of 20,000: from the key, as the page has it, to the first frame
that shows another number; each move begins as soon as the figures of the last are there. Over
websockets: the slowest of three sessions that open at once on scenarios that are new to the server,
to their first figures.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from tests.benchmarks.dashboard_sessions import Visit, scenario_link
from tests.support.dashboard_app import (
    Browser,
    Chromium,
    ServedDashboard,
    served_dashboard,
    user_of,
)

_FIRST, _AT_2000, _AT_20000, _AT_ONCE = 3.0, 0.2, 0.7, 1.0
"""Seconds that are allowed."""
_SESSIONS = 3
_LIMIT_S = 120.0
_SHOWN = (
    "[...document.querySelectorAll('[data-testid=stMetricValue]')].map(e => e.innerText).join()"
)
"""All figures on the page, as one text."""
_WATCH = f"""() => {{
    const shown = () => {_SHOWN};
    const before = shown();
    window.moved_ms = new Promise(resolve => {{
        let pressed_ms;
        const press = () => {{ pressed_ms = performance.now(); }};
        addEventListener('keydown', press, {{capture: true, once: true}});
        const watch = new MutationObserver(() => {{
            if (['', before].includes(shown())) return;
            watch.disconnect();
            requestAnimationFrame(() => resolve(performance.now() - pressed_ms));
        }});
        watch.observe(document.body, {{subtree: true, childList: true, characterData: true}});
    }});
}}"""
"""Has the page time the next key: how long until its figures change."""


@dataclass(frozen=True)
class Waits:
    """What was waited for, how long each time, and how long is allowed."""

    what: str
    lasted_s: Sequence[float]
    allowed_s: float

    @property
    def line(self) -> str:
        """All of it in a row of the table."""
        middle_s = statistics.median(self.lasted_s)
        verdict = "holds" if middle_s < self.allowed_s else "MISSED"
        return (
            f"{self.what:<58}{middle_s:7.2f} {max(self.lasted_s):8.2f} {self.allowed_s:8.1f}  "
            f"{verdict}"
        )


def first_numbers(chromium: Chromium, times: int) -> list[float]:
    """Open Explore on ``times`` fresh servers, each as a new user; return what each waited."""
    lasted_s = []
    for _ in range(times):
        with (
            TemporaryDirectory() as folder,
            served_dashboard(Path(folder)) as dashboard,
            user_of(dashboard, chromium) as user,
        ):
            started_s = time.perf_counter()
            user.page.goto(f"{dashboard.url}/explore", wait_until="commit")
            user.page.get_by_test_id("stMetricValue").first.wait_for()
            lasted_s.append(time.perf_counter() - started_s)
    return lasted_s


def slider_moves(user: Browser, times: int) -> list[float]:
    """Move the slider ``times`` times, while the intervals of the last move still fill in."""
    slider = user.page.get_by_role("slider", name="Requests per second")
    user.page.get_by_test_id("stMetricValue").first.wait_for()
    lasted_s = []
    for _ in range(times):
        user.page.evaluate(_WATCH)
        slider.press("ArrowRight")
        lasted_s.append(user.page.evaluate("() => window.moved_ms") / 1e3)
    return lasted_s


def sessions_at_once(dashboard: ServedDashboard, times: int) -> list[float]:
    """Open three sessions at once, ``times`` times; return what the slowest of them waited."""
    slowest_s = []
    for turn in range(times):
        queries = [scenario_link(_SESSIONS * turn + place, 2_000) for place in range(_SESSIONS)]
        visit = Visit(dashboard.url, intervals=False, limit_s=_LIMIT_S)
        found = asyncio.run(visit.all_at_once(queries))
        slowest_s.append(max(waited.first_s for waited in found))
    return slowest_s


def write_trace(path: Path, requests: int) -> None:
    """Write a trace of ten requests a second, in the columns of Azure's."""
    begin = datetime(2026, 1, 1)
    rows = (
        f"{begin + timedelta(seconds=n / 10):%Y-%m-%d %H:%M:%S.%f},{200 + n % 613},{20 + n % 211}\n"
        for n in range(requests)
    )
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(rows))


def _moves_of_a_link(
    dashboard: ServedDashboard, chromium: Chromium, requests: int, times: int
) -> list[float]:
    with user_of(dashboard, chromium) as user:
        user.page.goto(f"{dashboard.url}/explore?requests={requests}", wait_until="commit")
        return slider_moves(user, times)


def _moves_of_an_upload(
    dashboard: ServedDashboard, chromium: Chromium, requests: int, times: int
) -> list[float]:
    with TemporaryDirectory() as folder, user_of(dashboard, chromium) as user:
        path = Path(folder) / "own.csv"
        write_trace(path, requests)
        user.open("explore?rate=10", "Explore")
        chooser = user.page.get_by_test_id("stSidebar").locator("input[type=file]").first
        chooser.set_input_files(path)
        user.page.get_by_text(f"{requests:,} of {requests:,} requests").wait_for()
        user.page.get_by_text("At the trace's own rate").click()
        user.page.get_by_text("per second").first.wait_for()
        user.settle()
        return slider_moves(user, times)


def measurements(chromium: Chromium, times: int) -> Iterator[Waits]:
    """Yield each measurement as it is done."""
    with TemporaryDirectory() as folder, served_dashboard(Path(folder)) as dashboard:
        moves: list[tuple[str, Callable[..., list[float]], int, float]] = [
            ("slider to number, 2,000 requests", _moves_of_a_link, 2_000, _AT_2000),
            ("slider to number, 20,000 requests", _moves_of_a_link, 20_000, _AT_20000),
            ("slider to number, upload of 20,000", _moves_of_an_upload, 20_000, _AT_20000),
        ]
        for what, measure, requests, allowed_s in moves:
            yield Waits(what, measure(dashboard, chromium, requests, times), allowed_s)
    with TemporaryDirectory() as folder, served_dashboard(Path(folder)) as dashboard:
        at_once_s = sessions_at_once(dashboard, times)
        yield Waits("three sessions at once, the slowest to its number", at_once_s, _AT_ONCE)
    yield Waits("first answer of a fresh server", first_numbers(chromium, times), _FIRST)


def main(times: Annotated[int, typer.Option(min=1)] = 10) -> None:
    """Print the median and the longest of each wait, in seconds, beside what is allowed."""
    chromium = Chromium()
    head = f"seconds, {times} times each"
    typer.echo(f"{head:<58}{'median':>7} {'longest':>8} {'allowed':>8}")
    try:
        for waits in measurements(chromium, times):
            typer.echo(waits.line)
    finally:
        chromium.close()


if __name__ == "__main__":
    typer.run(main)
