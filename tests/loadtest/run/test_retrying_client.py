"""Retries, their waits, and clients that hang up."""

import time
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from servetwin.app.reports.load_test import render_report
from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.http.exchange import Exchange, Failure
from servetwin.loadtest.options import Cancellation, HangUp
from servetwin.loadtest.run.client import LoadOptions, run_load_test
from servetwin.loadtest.run.retrying_client import retry_after_s, retry_wait_s
from servetwin.sim.records.metrics import SLO
from tests.support.loadtest_server import Reply, ScriptedServer, stream_of
from tests.support.mock_endpoint import completions, evenly, mocked, plan, truths
from tests.support.mock_load import load, outcome

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [
        ("3", 3.0),
        (" 0 ", 0.0),
        ("Sat, 21 Nov 2026 12:00:07 GMT", 7.0),
        ("Sat, 21 Nov 2026 13:00:07 +0100", 7.0),
        ("Sat, 21 Nov 2026 11:59:00 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("", None),
    ],
)
def test_retry_after_in_seconds_and_as_a_date(text: str, wait_s: float | None) -> None:
    assert retry_after_s(text, NOW) == wait_s


@pytest.mark.parametrize(("attempt", "longest_s"), [(1, 0.5), (2, 1.0), (5, 8.0), (9, 30.0)])
def test_the_backoff_doubles_up_to_a_limit(attempt: int, longest_s: float) -> None:
    exchange = Exchange(failure=Failure("connect", "refused"), attempts=attempt)
    rng = np.random.default_rng(0)
    waits_s = np.array([retry_wait_s(exchange, rng) for _ in range(400)])
    assert waits_s.min() >= longest_s / 2
    assert waits_s.max() <= longest_s
    assert abs(waits_s.mean() - 0.75 * longest_s) < 4 * longest_s / 2 / np.sqrt(12 * 400)


def test_clients_hang_up_after_so_many_tokens() -> None:
    """The mock counts what it wrote before each client left."""
    faults = plan(ttft_ms=50, itl_ms=30)
    options = LoadOptions(cancellation=Cancellation(0.4, HangUp(after_tokens=5)), seed=3)
    with mocked(faults) as (server,):
        run = run_load_test(completions(server), evenly(20, 40, 12), options=options)
        time.sleep(0.2)
        written = truths(server)
    rows = run.requests
    hit = rows["request_id"].map(lambda name: options.hang_up(name) is not None)
    assert 0 < hit.sum() < 20
    assert (rows.loc[hit, "error"] == "cancelled_by_test").all()
    assert (rows.loc[hit, "status"] == "cancelled").all()
    assert (rows.loc[~hit, "status"] == "finished").all()
    columns = [rows.loc[hit, name] for name in ("response_id", "chunk_s", "output_tokens")]
    for name, chunk_s, output_tokens in zip(*columns, strict=True):
        before_the_last_read = sum(stamp_s < chunk_s[-1] for stamp_s in chunk_s)
        assert before_the_last_read < 5 <= output_tokens
        truth = written[str(name)]
        assert truth.outcome == "left"
        assert 5 <= sum(truth.tokens) < 12
    assert outcome(run)["cancelled_by_test"] == hit.sum()
    assert outcome(run)["failures"] == {}
    assert run.summary(SLO(ttft_s=9.0))["slo_attainment"] == 1.0
    said = f"cancellation test: clients hung up on {hit.sum()} requests; they did not fail"
    assert said in render_report(run)


def test_clients_hang_up_after_so_long() -> None:
    run = load(evenly(3, 40, 30), cancellation=Cancellation(1.0, HangUp(after_s=0.12)))
    assert (run.requests["error"] == "cancelled_by_test").all()
    assert (run.requests["output_tokens"] < 30).all()
    assert outcome(run)["first_messages"] == {"cancelled_by_test": "hung up after 120 ms"}


def test_an_answer_shorter_than_that_is_whole() -> None:
    run = load(evenly(3, 40, 4), cancellation=Cancellation(1.0, HangUp(after_tokens=5)))
    assert (run.requests["status"] == "finished").all()
    assert outcome(run)["cancelled_by_test"] == 0


@pytest.mark.slow
def test_the_same_requests_are_hung_up_in_any_number_of_processes() -> None:
    # Long answers: a client that is read late has still not got all of one when it hangs up.
    options: dict[str, Any] = {"cancellation": Cancellation(0.5, HangUp(after_tokens=1)), "seed": 1}
    one, two = (load(evenly(12, 60, 40), processes=p, **options) for p in (1, 2))
    assert one.requests["error"].tolist() == two.requests["error"].tolist()


def test_a_refused_request_is_asked_again_and_never_lost() -> None:
    """Of four attempts two are refused, with an answer to when it is worth while again."""
    run = load(evenly(6, 30, 2), "status:code=429,every=2,retry_after_s=0", retries=9)
    rows = run.requests
    assert rows["request_id"].tolist() == [f"r{n}" for n in range(6)]
    assert (rows["status"] == "finished").all()
    assert outcome(run)["retries"] == (rows["attempts"] - 1).sum() == 5
    assert outcome(run)["failures"] == {}
    outcome(run)["limited_by"] = []  # A busy machine would have a line for that instead.
    report = render_report(run)
    retried = int((rows["attempts"] > 1).sum())
    assert f"5 retries of {retried} requests" in report


def test_latencies_count_from_the_first_attempt() -> None:
    replies = iter([Reply((b"busy",), 503, {"Retry-After": "1"}), stream_of(2)])
    with ScriptedServer(lambda body: next(replies)).running() as server:
        run = run_load_test(probe(server.url), evenly(1, 10, 2), options=LoadOptions(retries=1))
    row = run.requests.iloc[0]
    assert (row["status"], row["attempts"]) == ("finished", 2)
    assert row["ttft_s"] >= 1.0
    assert row["ttft_sent_s"] >= 1.0
    assert row["sent_s"] - row["scheduled_s"] < 1.0
    assert server.arrivals[1].at_s - server.arrivals[0].at_s >= 1.0


@pytest.mark.parametrize(
    ("options", "fault", "error", "attempts"),
    [
        ({}, "status:code=429", "http_429", 1),
        ({"retries": 2}, "status:code=429,retry_after_s=0", "http_429", 3),
        ({"retries": 2}, "status:code=503,retry_after_s=0", "http_5xx", 3),
        ({"retries": 2}, "status:code=500,retry_after_s=0", "http_5xx", 1),
        ({"retries": 2}, "cut", "broken_stream", 1),
        ({"retries": 2, "timeout_s": 5.0}, "status:code=429,retry_after_s=60", "http_429", 1),
    ],
)
def test_only_refusals_are_asked_again_and_only_in_time(
    options: dict[str, Any], fault: str, error: str, attempts: int
) -> None:
    run = load(evenly(1, 10, 20), fault, **options)
    row = run.requests.iloc[0]
    assert (row["error"], row["attempts"]) == (error, attempts)


def test_no_connection_is_asked_again() -> None:
    with mocked(plan("refuse", ttft_ms=50)) as (server,):
        endpoint = completions(server)
        run = run_load_test(endpoint, evenly(1, 10, 2), options=LoadOptions(retries=1))
    assert run.requests["attempts"].tolist() == [2]
    assert run.requests["error"].tolist() == ["connect"]
