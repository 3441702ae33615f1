"""The dashboard's server: its headers on every answer, and its warning beyond the loopback."""

import base64
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest

from servetwin.app.dashboard.security_headers import content_policy
from servetwin.app.words import asset_table
from tests.support.dashboard_app import (
    Browser,
    Chromium,
    ServedDashboard,
    expect,
    served_dashboard,
    user_of,
)

OPEN_WARNING = asset_table("words.yaml")["open to the network"]
PATHS = {
    "/": 200,
    "/compare?rate=1e309": 200,
    "/_stcore/health": 200,
    "/_stcore/host-config": 200,
    "/media/none.csv": 404,
    "/_stcore/upload_file/session/file": 200,
    "/..%2f..%2fetc/passwd": 400,
}
INJECT = """
() => {
  const script = document.createElement("script");
  script.textContent = "window.injectedRan = true";
  document.head.append(script);
  return window.injectedRan === true;
}
"""


@pytest.fixture(scope="module")
def open_dashboard(
    chromium: Chromium, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServedDashboard, Path]]:
    """A dashboard that other machines can reach, and the folder of its log."""
    folder = tmp_path_factory.mktemp("open")
    with served_dashboard(folder, "--host", "0.0.0.0") as served:
        yield served, folder


@pytest.mark.browser
@pytest.mark.parametrize(("path", "status"), PATHS.items())
def test_every_answer_forbids_frames_and_foreign_scripts(
    user: Browser, path: str, status: int
) -> None:
    answer = httpx.get(f"{user.url}{path}", trust_env=False, timeout=30)
    assert answer.status_code == status
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    parts = answer.headers["content-security-policy"].split("; ")
    policy = dict(part.split(" ", 1) for part in parts)
    assert policy["default-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in policy["script-src"]


def test_the_policy_allows_the_scripts_of_the_start_page_by_their_digests() -> None:
    scripts = ["a()", "\n  b()\n"]
    page = "".join(f"<script>{script}</script>" for script in scripts)
    policy = content_policy(f'<html>{page}<script type="module" src="./x.js"></script></html>')
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()) for one in scripts]
    allowed = " ".join(f"'sha256-{digest.decode()}'" for digest in digests)
    assert f"; script-src 'self' {allowed}; " in policy
    assert "; script-src 'self'; " in content_policy("<html></html>")


@pytest.mark.slow
@pytest.mark.browser
def test_a_browser_draws_the_page_but_runs_no_injected_script(user: Browser) -> None:
    user.open("explore?requests=50", "Explore")
    user.assert_sound()
    assert user.page.evaluate(INJECT) is False
    assert "script-src" in user.problems[0]


@contextmanager
def another_site() -> Iterator[str]:
    """The address of a site whose only page is empty."""

    class EmptyPage(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage) as site:
        Thread(target=site.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{site.server_port}/"
        finally:
            site.shutdown()


@pytest.mark.browser
def test_no_page_of_another_origin_frames_the_dashboard(user: Browser) -> None:
    refused = "chrome-error://chromewebdata/"
    with another_site() as site:
        user.page.goto(site)
        user.page.set_content(f'<iframe src="{user.url}/"></iframe><iframe src="{site}"></iframe>')
        for _ in range(100):
            framed = {frame.url for frame in user.page.frames[1:]}
            if framed == {refused, site}:
                break
            user.page.wait_for_timeout(100)
        assert framed == {refused, site}


@pytest.mark.slow
@pytest.mark.browser
def test_an_open_address_is_warned_of_on_the_terminal_and_on_the_page(
    open_dashboard: tuple[ServedDashboard, Path], chromium: Chromium
) -> None:
    served, folder = open_dashboard
    (line,) = [line for line in (folder / "log.txt").read_text().splitlines() if "warning" in line]
    assert line == f"warning: {OPEN_WARNING}; --host 127.0.0.1 keeps it here"
    with user_of(served, chromium) as visitor:
        visitor.open("measure", "Measure")
        expect(visitor.page.get_by_test_id("stSidebar").get_by_text(OPEN_WARNING)).to_be_visible()
        visitor.assert_sound()


@pytest.mark.browser
def test_the_loopback_is_not_warned_of(user: Browser) -> None:
    user.open("measure", "Measure")
    assert user.page.get_by_text(OPEN_WARNING).count() == 0
