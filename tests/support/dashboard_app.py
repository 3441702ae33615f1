"""The dashboard in tests: one page by Streamlit's own tester, or all of it in a real browser."""

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from tests.support.paths import ROOT

CHROMIUM = shutil.which("chromium")
_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip
_PAGE = """
from app.dashboard.scenario.url_state import complain_of_link
from app.dashboard.scenario.sidebar import scenario_at_the_side
from app.dashboard.{name} import page

complain_of_link()
scenario_at_the_side()
page.page()
"""


def page_test(name: str) -> Any:
    """``AppTest`` of the page ``app.dashboard.<name>.page`` with the scenario at its side."""
    testing = pytest.importorskip("streamlit.testing.v1")
    return testing.AppTest.from_string(_PAGE.format(name=name), default_timeout=60)


@contextlib.contextmanager
def served_dashboard(folder: Path) -> Iterator[str]:
    """The dashboard on a free local port, keeping runs under ``folder``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "app.cli", "dashboard", "--port", str(port), "--headless",
        "--runs", str(folder / "runs"),
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with (folder / "log.txt").open("w") as log:
        server = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            _await_health(url, server)
            yield url
        finally:
            server.terminate()
            server.wait(10)


def _await_health(url: str, server: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/_stcore/health", timeout=1).text == "ok":
                return
        assert server.poll() is None, "the dashboard ended"
        time.sleep(0.1)
    pytest.fail("the dashboard did not start")


class Browser:
    """A Chromium page; ``problems`` are console errors and requests to anywhere else."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.problems: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.problems.append(f"page error: {error}"))
        page.on("request", self._on_request)

    def open(self, path: str = "", heading: str | None = None) -> None:
        """Go to a page and wait until it is drawn."""
        self.page.goto(f"{self.url}/{path}", wait_until="domcontentloaded")
        if heading:
            self.page.get_by_role("heading", name=heading, level=1).wait_for(timeout=60_000)
        self.settle()

    def settle(self) -> None:
        """Wait until the script has run to its end."""
        app = self.page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]')
        app.wait_for(timeout=60_000)

    def assert_sound(self) -> None:
        """No exception box, no console error, no request to the outside."""
        assert self.page.get_by_test_id("stException").count() == 0, "an exception box"
        assert not self.problems, self.problems

    def _on_console(self, message: Any) -> None:
        searching = "/_stcore/" in message.location["url"]  # Streamlit looks for its base path
        if message.type == "error" and not searching:
            self.problems.append(f"console: {message.text}")

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:", self.url.replace("http", "ws"))):
            self.problems.append(f"asked for {request.url}")


@contextlib.contextmanager
def browser(url: str, scheme: Literal["light", "dark"] = "light") -> Iterator[Browser]:
    """A new Chromium with nothing in its memory; skips where there is none."""
    if CHROMIUM is None or find_spec("playwright") is None:
        pytest.skip("no chromium on this machine, or no playwright to drive it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=_FLAGS)
        context = chromium.new_context(
            viewport={"width": 1440, "height": 1000}, reduced_motion="reduce", color_scheme=scheme
        )
        yield Browser(context.new_page(), url)
        chromium.close()
