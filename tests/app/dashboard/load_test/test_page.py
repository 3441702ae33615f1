"""The page that starts a load test, watches it beside its prediction, and stops it."""

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from app import figures
from app.dashboard.load_test.load_test_process import Endpoint, LoadTestProcess, start
from app.dashboard.simulations import SimulatedScenario, simulate
from app.scenario.scenario_file import parse_scenario
from sim.records.run import RunError, load_run
from tests.support.dashboard_app import Browser, browser, page_test, served_dashboard
from tests.support.mock_endpoint import mocked, plan
from tests.support.paths import ROOT

FEW = """
workload: {requests: 30, rate_per_s: 30, prompt_tokens: 20, prompt_cv: 0.2, output_tokens: 8,
           output_cv: 0.2}
"""
SOME_ENDED = re.compile(r"[1-9]\d* of 500 requests have ended")
SMALL_LINK = "load-test?requests={}&rate={}&prompt_tokens=20&output_tokens={}&profile=base-cpu"


def outcome_of(text: str) -> SimulatedScenario:
    return simulate(parse_scenario(text, "test"))


def end_of(test: LoadTestProcess) -> LoadTestProcess:
    test.process.wait(60)
    test.refresh()
    return test


def test_a_test_keeps_trace_prediction_and_measurement(tmp_path: Path) -> None:
    with mocked(plan(ttft_ms=10, itl_ms=1)) as (server,):
        test = end_of(start(tmp_path, Endpoint(server.url), outcome_of(FEW), []))
    assert test.has_run, test.said()
    assert test.state["ended"] == test.state["total"] == 30
    predicted, measured = (load_run(test.folder / name) for name in ("predicted", "measured"))
    assert set(predicted.requests["request_id"]) == set(measured.requests["request_id"])
    answers = test.answered()
    by_ttft = measured.requests["ttft_sent_s"]
    assert len(answers) <= 30
    assert answers["ttft_s"].median() == pytest.approx(by_ttft.median(), rel=0.2)


def test_a_key_reaches_the_endpoint_and_no_file(tmp_path: Path) -> None:
    with mocked(plan(ttft_ms=10, itl_ms=1)) as (server,):
        endpoint = Endpoint(server.url, api_key="sk-very-secret")
        test = end_of(start(tmp_path, endpoint, outcome_of(FEW), []))
    assert test.has_run
    assert "very-secret" not in repr(endpoint)
    for path in test.folder.rglob("*"):
        assert path.is_dir() or b"very-secret" not in path.read_bytes(), path


def test_nobody_at_the_other_end_is_said(tmp_path: Path) -> None:
    test = end_of(start(tmp_path, Endpoint("http://127.0.0.1:9"), outcome_of(FEW), []))
    assert not test.has_run
    assert "127.0.0.1:9" in (test.complaint() or "")


def test_a_folder_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(RunError, match="cannot be written"):
        start(tmp_path / "runs", Endpoint("http://127.0.0.1:9"), outcome_of(FEW), [])


def test_stop_keeps_what_has_finished(tmp_path: Path) -> None:
    slow = FEW.replace("requests: 30, rate_per_s: 30", "requests: 400, rate_per_s: 20")
    with mocked(plan(ttft_ms=10, itl_ms=1)) as (server,):
        test = start(tmp_path, Endpoint(server.url), outcome_of(slow), [])
        while test.running and test.state["ended"] < 10:
            time.sleep(0.1)
            test.refresh()
        test.stop()
        end_of(test)
    assert "interrupted" in (test.complaint() or "")
    statuses = load_run(test.folder / "measured").requests["status"]
    assert 10 <= (statuses == "finished").sum() < 400


def test_a_half_written_line_waits_for_its_end(tmp_path: Path) -> None:
    test = LoadTestProcess(tmp_path, subprocess.Popen([sys.executable, "-c", ""]))
    whole = '{"elapsed_s": 1.0, "total": 2, "sent": 1, "ended": 1, "failed": 0, "answers": []}\n'
    path = tmp_path / "live.jsonl"
    path.write_text(whole[:30])
    test.refresh()
    assert test.state["ended"] == 0
    path.write_text(whole)
    test.refresh()
    assert test.state["ended"] == 1
    test.process.wait(10)


def test_the_figure_has_both_sides_and_the_limit(tmp_path: Path) -> None:
    outcome = outcome_of(FEW)
    test = LoadTestProcess(tmp_path, subprocess.Popen([sys.executable, "-c", ""]))
    test.answers = [{"sent_s": 0.5, "ttft_s": 0.1, "tpot_s": None, "failure": None}]
    looks = figures.looks(("predicted", "measured"))
    figure = figures.live_latency(test.answered(), outcome.run.requests, "ttft_s", looks, 0.5)
    assert [trace.name for trace in figure.data] == ["measured so far", "predicted, running median"]
    assert list(figure.data[0].y) == [100.0]
    assert figure.layout.yaxis.title.text == "TTFT, ms"
    assert "median 100 ms" in figures.alt_text(figure)
    test.process.wait(10)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "wants an address"),
        ("localhost", "wants an address"),
        ("file:///etc/passwd", "wants an address"),
        ("--help", "wants an address"),
    ],
)
def test_an_impossible_address_is_said_beside_the_form(url: str, said: str) -> None:
    at = page_test("load_test")
    at.session_state["requests"] = 50
    at.run()
    at.text_input(key="load_test_url").set_value(url)
    next(button for button in at.button if button.label == "Start").click().run()
    assert not at.exception
    assert said in at.error[0].value


@contextmanager
def bundled_engine() -> "Iterator[tuple[str, subprocess.Popen[bytes]]]":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "app.cli", "serve", "--model", "tiny", "--port", str(port)]
    server = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                httpx.get(f"{url}/v1/models", timeout=1)
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url, server
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("dashboard")
    with served_dashboard(folder) as url:
        yield url, folder / "runs"


def begin(chromium: Browser, url: str, requests: int, rate: int, output_tokens: int) -> None:
    chromium.open(SMALL_LINK.format(requests, rate, output_tokens), "Load test")
    field = chromium.page.get_by_label("Endpoint")
    field.fill(url)
    chromium.page.get_by_role("button", name="Start").click()


@pytest.mark.browser
@pytest.mark.slow
def test_bundled_engine_in_the_browser(dashboard: tuple[str, Path]) -> None:
    url, runs = dashboard
    with bundled_engine() as (engine, server), browser(url) as chromium:
        page = chromium.page
        begin(chromium, engine, 30, 20, 8)
        page.get_by_text("30 finished").wait_for(timeout=60_000)
        assert page.get_by_test_id("stPlotlyChart").count() == 2

        begin(chromium, engine, 500, 10, 8)
        page.get_by_text(SOME_ENDED).wait_for(timeout=30_000)
        page.get_by_role("button", name="Stop").click()
        page.get_by_text("Interrupted").wait_for(timeout=30_000)

        begin(chromium, engine, 500, 10, 8)
        page.get_by_text(SOME_ENDED).wait_for(timeout=30_000)
        server.kill()
        page.get_by_text("the endpoint was gone").first.wait_for(timeout=60_000)
        chromium.assert_sound()
        page.get_by_role("link", name="Runs").click()
        page.get_by_role("heading", name="Runs", level=1).wait_for(timeout=30_000)
    kept = sorted(runs.iterdir())
    assert len(kept) == 3
    for folder in kept:
        assert (load_run(folder / "measured").requests["status"] == "finished").any()
