"""The page that starts a load test, watches it beside its prediction, and stops it."""

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from servetwin.app.dashboard.formatting import escaped
from servetwin.app.dashboard.measure import page
from servetwin.app.dashboard.measure.load_test_process import MEASURED, Endpoint, LoadTestProcess
from servetwin.app.dashboard.scenario import allowed_choices
from servetwin.app.scenario.options.common import Additions
from servetwin.sim.records.run import load_run
from tests.support.dashboard_app import Browser, expect, page_test
from tests.support.mock_load import load, trace_of
from tests.support.paths import ROOT

SOME_ENDED = re.compile(r"[1-9]\d* of 500 requests have ended")


def page_after(folder: Path, command: str) -> Any:
    """Draw the page of a load test that ended as ``command`` does, and left ``folder``."""
    at = page_test("measure")
    at.session_state["requests"] = 50
    at.session_state["load_test"] = test = LoadTestProcess(folder, subprocess.Popen([command]))
    at.session_state["load_test_outcome"] = None
    test.process.wait()
    with patch.object(
        allowed_choices, "additions", lambda: replace(Additions(), runs=folder.parent)
    ):
        at.run()
    assert not at.exception
    return at


SMALL_LINK = (
    "measure?requests={}&rate={}&prompt_tokens=20&output_tokens=8"
    "&model=base&gpu=AMD+EPYC&times=base-cpu"
)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "is not an http URL"),
        ("file:///etc/passwd", "is not an http URL"),
        ("http://[::1", "is not a URL"),
        ("http://127.0.0.1:65536", "a port is from 1 to 65535"),
        ("--help", "may go to 127.0.0.1:8000"),
        ("http://127.0.0.1:8000.evil.example", "is not a URL"),
        ("http://127.0.0.1:8000/other", "may go to 127.0.0.1:8000"),
        ("http://127.0.0.1:8001", "may go to 127.0.0.1:8000"),
    ],
)
def test_an_address_that_is_not_tested_is_said_beside_the_form(url: str, said: str) -> None:
    at = page_test("measure")
    at.session_state["requests"] = 50
    only_one = replace(Additions(), targets=("127.0.0.1:8000",))
    with patch.object(page, "additions", lambda: only_one):
        at.run()
        assert at.text_input(key="measure_url").value == "127.0.0.1:8000"
        at.text_input(key="measure_url").set_value(url)
        next(button for button in at.button if button.label == "Start").click().run()
    assert not at.exception
    assert said in at.error[0].value


@pytest.mark.parametrize(
    ("host", "targets", "is_tested"),
    [
        ("127.0.0.1", (), True),
        ("0.0.0.0", (), False),
        ("0.0.0.0", ("http://a.example:8000/v1",), True),
        ("127.0.0.1", ("http://b.example",), False),
    ],
)
def test_a_dashboard_open_to_others_tests_only_its_targets(
    monkeypatch: pytest.MonkeyPatch, host: str, targets: tuple[str, ...], is_tested: bool
) -> None:
    monkeypatch.setattr(page, "additions", lambda: replace(Additions(), targets=targets))
    monkeypatch.setattr("streamlit.get_option", {"server.address": host}.get)
    problem = page._problem(Endpoint("http://a.example:8000"))
    assert (problem is None) is is_tested


def test_before_the_first_load_test_an_example_is_drawn_that_says_it_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("servetwin.app.dashboard.measure.kept.runs_folder", lambda: tmp_path)
    at = page_test("measure")
    at.session_state["requests"] = 50
    at.run()
    assert not at.exception
    assert at.subheader[-1].value == "Example: a load test of the bundled engine"
    assert len(at.get("plotly_chart")) > 4
    tables = [table.value for table in at.dataframe]
    verdicts = next(table for table in tables if "verdict" in table)
    assert {"TTFT mean, ms", "TPOT mean, ms"} <= set(verdicts["metric"])


def test_the_warnings_of_the_report_stand_above_the_result(tmp_path: Path) -> None:
    folder = tmp_path / "loadtest-1"
    run = load(trace_of(0.0, 0.01))
    run.extra["delivered"]["limited_by"] = []  # A busy machine may make the client late.
    run.extra["delivered"]["token_doubts"] = ["USAGE DOUBTED for 2 of 2 requests"]
    run.extra["prompt_cache"] = {
        "cached_share": 0.9,
        "said_by": "usage",
        "own_share": 0.1,
        "added_share": 0.0,
    }
    run.save(folder / MEASURED)
    at = page_after(folder, "true")
    shown = [warning.value for warning in at.warning]
    assert shown[0] == "USAGE DOUBTED for 2 of 2 requests"
    assert "90.0%" in shown[1]
    assert len(shown) == 2
    assert not any("Example" in one.value for one in at.subheader), "beside a result"


def test_a_load_test_that_ended_early_says_why_above_what_it_has(tmp_path: Path) -> None:
    folder = tmp_path / "loadtest-1"
    load(trace_of(0.0, 0.01)).save(folder / MEASURED)
    why = "stopped: the endpoint was gone (no connection for 10 s); 2 of 500 requests are kept"
    (folder / "output.txt").write_text(f"servetwin: {why}\n")
    at = page_after(folder, "false")
    assert at.error[0].value == escaped(why[:1].upper() + why[1:])
    assert at.session_state["measure_open"] == "loadtest-1"


@contextmanager
def bundled_engine() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "servetwin.app.cli",
        "serve",
        "--model",
        "tiny",
        "--port",
        str(port),
    ]
    server = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(trust_env=False, timeout=1) as client:
            for _ in range(600):
                try:
                    client.get(f"{url}/health").raise_for_status()
                    break
                except httpx.HTTPError:
                    time.sleep(0.1)
        yield url
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)


def begin(user: Browser, url: str, requests: int, rate: int) -> None:
    user.open(SMALL_LINK.format(requests, rate), "Measure")
    user.page.get_by_label("Endpoint", exact=True).fill(url)
    user.start("Start")


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_bundled_engine_in_the_browser(user: Browser) -> None:
    from playwright.sync_api import TimeoutError as NotLoaded

    page = user.page
    with bundled_engine() as engine:
        begin(user, engine, 30, 20)
        page.get_by_test_id("stText").get_by_text("30 finished").wait_for(timeout=180_000)
        user.settle()
        assert page.get_by_test_id("stPlotlyChart").count() > 4

        begin(user, engine, 500, 10)
        page.get_by_text(SOME_ENDED).wait_for(timeout=180_000)
        for _ in range(5):  # a button that is just drawn anew, as every second, loses the click
            with suppress(NotLoaded):
                page.get_by_role("button", name="Stop").click(timeout=10_000)
                page.get_by_text("Interrupted").first.wait_for(timeout=30_000)
                break
        expect(page.get_by_text("Interrupted").first).to_be_visible()
    user.assert_sound()
    kept = sorted(user.runs.iterdir())
    assert len(kept) == 2
    for folder in kept:
        assert (load_run(folder / "measured").requests["status"] == "finished").any()
