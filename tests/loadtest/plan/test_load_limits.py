"""Warm-up, duration, drain, cancellation tests and retries."""

import time
from typing import Any

import pytest

from loadtest.endpoint import probe
from loadtest.options import Cancellation, HangUp
from loadtest.plan.users import with_users
from loadtest.report.report import render_report
from loadtest.run.client import LoadOptions, run_load_test
from sim.records.metrics import SLO
from tests.support.loadtest_server import Reply, ScriptedServer, stream_of
from tests.support.mock_endpoint import completions, evenly, mocked, plan, truths
from tests.support.mock_load import chats, load, outcome


def test_the_warm_up_is_sent_and_in_no_figure() -> None:
    """Ten requests each 50 ms; the first four, due before 200 ms, are slow."""
    run = load(evenly(10, 20, 3), "slow-start:requests=4,extra_ms=400", warm_up_s=0.2)
    assert run.requests["warm_up"].tolist() == [True] * 4 + [False] * 6
    assert (run.requests["status"] == "finished").all()
    summary = run.summary(SLO(ttft_s=0.3))
    assert summary["requests"]["total"] == 6
    assert summary["ttft_s"]["count"] == 6
    slow = run.requests["ttft_s"] > 0.4
    assert slow.tolist() == run.requests["warm_up"].tolist()
    assert summary["slo_attainment"] == 1.0
    report = render_report(run, SLO(ttft_s=0.3))
    assert "warm-up: 4 requests due in the first 0.2 s, in no figure below" in report
    assert "6 requests: 6 finished" in report


def test_a_run_that_was_all_warm_up_has_a_report() -> None:
    run = load(evenly(2, 20, 1), warm_up_s=9.0)
    assert run.summary(SLO(ttft_s=1.0))["requests"]["total"] == 0
    assert "warm-up: 2 requests" in render_report(run, SLO(ttft_s=1.0))


def test_nothing_is_sent_after_the_duration() -> None:
    run = load(evenly(20, 20, 1), duration_s=0.3)
    assert run.requests["request_id"].tolist() == [f"r{n}" for n in range(6)]
    assert run.scenario["notes"] == ["14 requests after 0.3 s cut"]


def test_what_is_unfinished_after_the_drain_is_cancelled() -> None:
    run = load(evenly(4, 20, 1), "never:every=2", drain_s=0.4)
    assert sorted(run.requests["status"]) == ["cancelled"] * 2 + ["finished"] * 2
    assert outcome(run)["failures"] == {"cancelled": 2}
    message = outcome(run)["first_messages"]["cancelled"]
    assert message == "in flight 0.4 s after the last send"
    assert not outcome(run)["interrupted"]


def test_the_drain_begins_after_the_last_follow_up() -> None:
    run = load(chats(3, delay_s=0.2), drain_s=0.1)
    assert (run.requests["status"] == "finished").all()


def test_users_who_hang_are_drained_after_the_duration() -> None:
    began_s = time.monotonic()
    users = with_users(evenly(2, 10, 1), 2)
    options: dict[str, Any] = {"closed_loop": True, "concurrency": 2, "endless": True}
    run = load(users, "never:every=4", duration_s=0.4, drain_s=0.1, **options)
    assert time.monotonic() - began_s < 20
    assert "cancelled" in set(run.requests["status"])


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
    assert (rows.loc[hit, "output_tokens"] == 5).all()
    for row in rows[hit].itertuples():
        truth = written[str(row.response_id)]
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


def test_the_same_requests_are_hung_up_in_any_number_of_processes() -> None:
    options: dict[str, Any] = {"cancellation": Cancellation(0.5, HangUp(after_tokens=1)), "seed": 1}
    one, two = (load(evenly(12, 60, 4), processes=p, **options) for p in (1, 2))
    assert one.requests["error"].tolist() == two.requests["error"].tolist()


def test_a_refused_request_is_asked_again_and_never_lost() -> None:
    """Of four attempts two are refused, with an answer to when it is worth while again."""
    run = load(evenly(6, 30, 2), "status:code=429,every=2,retry_after_s=0", retries=9)
    rows = run.requests
    assert rows["request_id"].tolist() == [f"r{n}" for n in range(6)]
    assert (rows["status"] == "finished").all()
    assert outcome(run)["retries"] == (rows["attempts"] - 1).sum() == 5
    assert outcome(run)["failures"] == {}
    report = render_report(run)
    retried = int((rows["attempts"] > 1).sum())
    assert f"({retried} retried)" in report
    assert "5 retries of" in report


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
