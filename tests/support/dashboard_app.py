"""The dashboard in tests: one page by Streamlit's own tester, or all of it in a real browser."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.paths import ROOT

_CHROMIUM = shutil.which("chromium")
_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip
_UNFOLD = "e => e.closest('details:not([open])')?.querySelector('summary').click()"
_USER_OPTIONS: dict[str, Any] = {
    "viewport": {"width": 1440, "height": 1000}, "reduced_motion": "reduce", "color_scheme": "light"
}  # fmt: skip
_ACTION_MS = 60_000
_PAGE = """
from servetwin.app.dashboard.scenario.url_state import complain_of_link
from servetwin.app.dashboard.scenario.sidebar import scenario_at_the_side
from servetwin.app.dashboard.widgets import show_set_controls
from servetwin.app.dashboard.pages import drawing

show_set_controls()
complain_of_link()
scenario_at_the_side()
drawing("{name}")()
"""


CERTAIN = "compute_spread=0,memory_spread=0,overhead_spread=0"
"""An efficiency of which nothing can be drawn."""


def page_test(name: str) -> Any:
    """``AppTest`` of the page of that name with the scenario at its side."""
    testing = pytest.importorskip("streamlit.testing.v1")
    return testing.AppTest.from_string(_PAGE.format(name=name), default_timeout=60)


def expect(found: Any) -> Any:
    """Return playwright's assertions on a locator, which wait up to a minute."""
    from playwright import sync_api

    sync_api.expect.set_options(timeout=60_000)
    return sync_api.expect(found)


@dataclass(frozen=True, slots=True)
class ServedDashboard:
    """A dashboard that listens at ``url`` and keeps its runs in ``runs``."""

    url: str
    runs: Path


@contextlib.contextmanager
def served_dashboard(folder: Path, *options: str) -> Iterator[ServedDashboard]:
    """Serve the dashboard on a free local port; its runs and its log lie under ``folder``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    runs = folder / "runs"
    runs.mkdir()
    command = [
        sys.executable, "-m", "servetwin", "dashboard", "--port", str(port), "--headless",
        "--runs", str(runs), *options,
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with (folder / "log.txt").open("w") as log:
        server = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            _await_health(url, server)
            yield ServedDashboard(url, runs)
        finally:
            server.terminate()
            server.wait(10)


def _await_health(url: str, server: "subprocess.Popen[bytes]") -> None:
    with httpx.Client(trust_env=False, timeout=1) as client:
        for _ in range(1200):
            with contextlib.suppress(httpx.TransportError):
                if client.get(f"{url}/_stcore/health").text == "ok":
                    return
            assert server.poll() is None, "the dashboard ended"
            time.sleep(0.1)
    pytest.fail("the dashboard did not start")


class Chromium:
    """One Chromium for all browser tests of a process.

    Playwright keeps an event loop running in this thread. It is hidden between browser tests, so
    that other tests can run loops of their own.
    """

    def __init__(self) -> None:
        if _CHROMIUM is None or find_spec("playwright") is None:
            pytest.skip("no chromium on this machine, or no playwright to drive it")
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        self._loop = asyncio.get_running_loop()
        self._program = self._playwright.chromium.launch(
            executable_path=_CHROMIUM, headless=True, args=_FLAGS
        )
        self._page: Any = None
        asyncio._set_running_loop(None)

    def _user(self) -> Any:
        """Open a context as a user of the dashboard has it, whose pages are watched."""
        context = self._program.new_context(**_USER_OPTIONS)
        context.set_default_timeout(_ACTION_MS)
        context.add_init_script(_WATCH_SCRIPT)
        return context

    @contextlib.contextmanager
    def user(self) -> Iterator[Any]:
        """Open a page with nothing in its memory, and close it with its context."""
        with self._driven(), contextlib.closing(self._user()) as context:
            yield context.new_page()

    @contextlib.contextmanager
    def page(
        self, width: int = 1440, scheme: str = "light", offline: bool = False
    ) -> Iterator[Any]:
        """Lend the page of all tests, which finds neither cookies nor stored items.

        A page of its own would cost each test three seconds of CPU: Chromium starts a process for
        it and compiles the scripts of the dashboard anew.
        """
        with self._driven():
            if self._page is None or self._page.is_closed():
                self._page = self._user().new_page()
            page = self._page
            page.set_viewport_size({"width": width, "height": 1000})
            page.emulate_media(color_scheme=scheme, media="null")
            page.context.set_offline(offline)
            yield page
            page.unroute_all()  # a test that failed leaves its routes
            if page.url != "about:blank":
                page.evaluate("localStorage.clear(), sessionStorage.clear()")
            page.goto("about:blank")  # ends the session at the dashboard
            page.context.clear_cookies()

    @contextlib.contextmanager
    def _driven(self) -> Iterator[None]:
        """Show the loop of playwright."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self._loop)
        try:
            yield
        finally:
            asyncio._set_running_loop(outer)

    def close(self) -> None:
        """End the program."""
        asyncio._set_running_loop(self._loop)
        self._program.close()
        self._playwright.stop()


@contextlib.contextmanager
def noted(page: Any) -> Iterator[tuple[list[str], list[str]]]:
    """Note the addresses that a page asks for, and what it writes on the console."""
    asked, said = list[str](), list[str]()
    listeners = {
        "request": lambda request: asked.append(request.url),
        "console": lambda message: said.append(message.text),
        "pageerror": lambda error: said.append(str(error)),
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    yield asked, said
    for event, listener in listeners.items():
        page.remove_listener(event, listener)


_WATCH_SCRIPT = """
window.scriptRuns = 0;
window.scriptChangedMs = 0;
new MutationObserver(changes => {
  for (const change of changes) {
    window.scriptChangedMs = performance.now();
    if (change.oldValue === 'running') window.scriptRuns++;
  }
}).observe(document, {
  subtree: true, attributes: true, attributeOldValue: true,
  attributeFilter: ['data-test-script-state'],
});
"""
# React may draw the start and the end of a quick run in one step, and nothing is seen to run: then
# ten seconds in which nothing changes are an end too.
_IS_SETTLED = """
([runs, sinceMs]) => (window.scriptRuns >= runs || performance.now() - sinceMs > 10000)
  && document.querySelector('[data-testid=stApp][data-test-script-state=notRunning]') !== null
  && document.querySelector('[data-stale=true]') === null
  && performance.now() - window.scriptChangedMs > 150
"""
_WAIT_MS = 120_000
_CLICKS = 3


class Browser:
    """A page of Chromium on the dashboard; ``problems`` are console errors and requests elsewhere.

    Every action waits until the dashboard's script has run to its end, acts, and waits until the
    run that the action started has ended too.
    """

    def __init__(self, page: Any, dashboard: ServedDashboard) -> None:
        self.page = page
        self.url = dashboard.url
        self.runs = dashboard.runs
        self.problems: list[str] = []
        self._listeners = {
            "console": self._on_console, "pageerror": self._on_page_error,
            "request": self._on_request,
        }  # fmt: skip
        for event, listener in self._listeners.items():
            page.on(event, listener)

    def leave(self) -> None:
        """Listen to the page no longer: the next test has it."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)

    def open(self, path: str, heading: str) -> None:
        """Go to a page by its address and wait until it is drawn."""
        self.page.goto(f"{self.url}/{path}", wait_until="domcontentloaded")
        self.await_heading(heading, level=1)
        self.settle()

    def act(self, action: Callable[[], object]) -> None:
        """Do something that runs the script once more, and wait for the end of that run."""
        self.settle()
        runs, since_ms = self.page.evaluate("[window.scriptRuns, performance.now()]")
        action()
        self.settle(runs + 1, since_ms)

    def press(self, name: str) -> None:
        """Press the button ``name``."""
        self.act(self.page.get_by_role("button", name=name, exact=True).click)

    def start(self, name: str) -> None:
        """Press the button ``name`` that starts a job, whose page is drawn anew until it ends."""
        self.settle()
        self.page.get_by_role("button", name=name, exact=True).click()

    def fill(self, label: str, text: str) -> None:
        """Type ``text`` into the field ``label``."""
        self.settle()
        field = self.page.get_by_label(label, exact=True)
        field.evaluate(_UNFOLD)
        field.fill(text)
        self.act(lambda: field.press("Enter"))

    def upload(self, file: Any, place: int = 0) -> None:
        """Give a file to an uploader of the sidebar (0: trace, 1: YAML), as often as ``visit``.

        The name of a trace stands somewhere once it is taken.
        """
        sidebar = self.page.get_by_test_id("stSidebar")
        name = file["name"] if isinstance(file, dict) else file.name
        for _ in range(_CLICKS):
            field = sidebar.locator("input[type=file]").nth(place)
            field.evaluate(_UNFOLD)
            self.act(partial(field.set_input_files, file))
            if place or self.page.get_by_text(name).count():
                break

    def visit(self, name: str) -> None:
        """Go to another page by its link along the top.

        As a user does, click again where nothing happens: Streamlit draws the link anew at the end
        of a job, and a click on the one before is lost.
        """
        heading = self.page.get_by_role("heading", name=name, level=1)
        for _ in range(_CLICKS):
            self.act(self.page.get_by_role("link", name=name, exact=True).click)
            if heading.count():
                break
        self.await_heading(name, level=1)

    def await_heading(self, name: str, level: int | None = None) -> None:
        """Wait until a heading that has ``name`` in it is there."""
        heading = self.page.get_by_role("heading", name=name, level=level)
        heading.first.wait_for(timeout=_WAIT_MS)

    def settle(self, runs: int = 0, since_ms: float = 0) -> None:
        """Wait until the script has run to its end ``runs`` times since ``since_ms``, on the clock
        of the page, and is not running."""
        self.page.wait_for_function(_IS_SETTLED, arg=[runs, since_ms], timeout=_WAIT_MS)

    def assert_sound(self) -> None:
        """No exception box, no console error, no request to the outside."""
        assert self.page.get_by_test_id("stException").count() == 0, "an exception box"
        assert not self.problems, self.problems

    def _on_console(self, message: Any) -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text}")

    def _on_page_error(self, error: Any) -> None:
        self.problems.append(f"page error: {error}")

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:", self.url.replace("http", "ws"))):
            self.problems.append(f"asked for {request.url}")


@contextlib.contextmanager
def user_of(dashboard: ServedDashboard, chromium: Chromium) -> Iterator[Browser]:
    """Open a browser context on the dashboard, as another user would."""
    with chromium.user() as page:
        yield Browser(page, dashboard)
