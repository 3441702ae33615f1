"""A load test in a process of its own: what it keeps, its key, its end."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from servetwin.app.dashboard.measure.load_test_process import Endpoint, LoadTestProcess, start
from servetwin.app.dashboard.simulations import SimulatedScenario, simulate
from servetwin.app.figures import canvas, over_time
from servetwin.app.scenario.files.scenario_file import parse_scenario
from servetwin.sim.records.run import RunError, load_run
from tests.support.figure_frames import requests_frame
from tests.support.mock_endpoint import mocked, plan

FEW = """
workload: {requests: 30, rate_per_s: 30, prompt_tokens: 20, prompt_cv: 0.2, output_tokens: 8,
           output_cv: 0.2}
"""


def outcome_of(text: str) -> SimulatedScenario:
    return simulate(parse_scenario(text, "test"))


def end_of(test: LoadTestProcess) -> LoadTestProcess:
    test.process.wait(60)
    test.refresh()
    return test


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> LoadTestProcess:
    """A load test with an API key, run to its end."""
    folder = tmp_path_factory.mktemp("runs")
    with mocked(plan(ttft_ms=10, itl_ms=1)) as (server,):
        endpoint = Endpoint(server.url, api_key="sk-very-secret")
        test = end_of(start(folder, endpoint, outcome_of(FEW), []))
    assert test.has_run, test.output()
    return test


@pytest.mark.slow
def test_a_test_keeps_trace_prediction_and_measurement(finished: LoadTestProcess) -> None:
    assert finished.state["ended"] == finished.state["total"] == 30
    predicted, measured = (load_run(finished.folder / name) for name in ("predicted", "measured"))
    assert set(predicted.requests["request_id"]) == set(measured.requests["request_id"])
    answers = finished.answered()
    by_ttft = measured.requests["ttft_sent_s"]
    assert len(answers) <= 30
    assert answers["ttft_s"].median() == pytest.approx(by_ttft.median(), rel=0.2)


def test_a_key_is_in_no_file(finished: LoadTestProcess) -> None:
    assert "very-secret" not in repr(Endpoint("http://127.0.0.1:9", api_key="sk-very-secret"))
    for path in finished.folder.rglob("*"):
        assert path.is_dir() or b"very-secret" not in path.read_bytes(), path


def test_nobody_at_the_other_end_is_said(tmp_path: Path) -> None:
    test = end_of(start(tmp_path, Endpoint("http://127.0.0.1:9"), outcome_of(FEW), []))
    assert not test.has_run
    assert "127.0.0.1:9" in (test.failure() or "")


def test_a_folder_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(RunError, match="cannot be written"):
        start(tmp_path / "runs", Endpoint("http://127.0.0.1:9"), outcome_of(FEW), [])


@pytest.mark.slow
def test_stop_keeps_what_has_finished(tmp_path: Path) -> None:
    slow = FEW.replace("requests: 30, rate_per_s: 30", "requests: 400, rate_per_s: 20")
    with mocked(plan(ttft_ms=10, itl_ms=1)) as (server,):
        test = start(tmp_path, Endpoint(server.url), outcome_of(slow), [])
        while test.running and test.state["ended"] < 10:
            time.sleep(0.1)
            test.refresh()
        test.stop()
        end_of(test)
    assert "interrupted" in (test.failure() or "")
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


@pytest.mark.parametrize("failure", [None, "refused"])
def test_answers_are_drawn_as_requests_beside_the_prediction(
    tmp_path: Path, failure: str | None
) -> None:
    test = LoadTestProcess(tmp_path, subprocess.Popen([sys.executable, "-c", ""]))
    looks = canvas.looks(("predicted", "measured"))
    nothing = test.answered()
    test.answers = [
        {"sent_s": 0.5, "ttft_s": 0.1, "tpot_s": None, "failure": None},
        {"sent_s": 0.7, "ttft_s": None, "tpot_s": None, "failure": failure},
    ]
    some = test.answered()
    assert some["status"].tolist() == ["finished", "failed" if failure else "finished"]
    for answers, drawn in ((nothing, []), (some, [100.0])):
        requests = {"predicted": requests_frame(30), "measured": answers}
        figure = over_time.latency_over_time(requests, "ttft_s", looks, 0.5)
        shown = next(trace for trace in figure.data if trace.name == "measured")
        assert list(shown.y) == drawn
        assert figure.layout.annotations[0].text == "SLO 500 ms"
        over_time.latency_over_time(requests, "tpot_s", looks)
    test.process.wait(10)
