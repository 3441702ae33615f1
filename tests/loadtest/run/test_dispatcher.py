"""What is sent when: closed loops, conversations, warm-up, duration and drain."""

import time
from typing import Any

import numpy as np
import pytest

from servetwin.app.reports.load_test import render_report
from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.plan.users import with_users
from servetwin.loadtest.report.load_notes import CLOSED_LOOP
from servetwin.loadtest.run.client import LoadOptions, run_load_test
from servetwin.sim.records.metrics import SLO
from servetwin.workloads.generators.pauses import LognormalPause
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.loadtest_server import Reply, ScriptedServer, stream_of
from tests.support.mock_endpoint import evenly
from tests.support.mock_load import chats, ends_s, in_order, load, outcome


def test_the_send_order_of_a_closed_loop() -> None:
    """Answers of 50 + 10 (n - 1) ms: user 1 has 50, 150 and 50 ms, user 2 250 and 50 ms.

    So user 1 asks at 0, 50, 200 ms and user 2 at 20 (ramp-up of 40 ms), 270 ms.
    """
    tokens = [1, 21, 11, 1, 1]
    trace = Trace(tuple(Request(f"r{n}", 0.0, 5, t) for n, t in enumerate(tokens)), "five")
    users = with_users(trace, 2, ramp_up_s=0.04)
    run = load(users, closed_loop=True, concurrency=2)
    assert in_order(run) == ["r0", "r1", "r2", "r4", "r3"]
    assert run.requests["status"].tolist() == ["finished"] * 5
    rows = run.requests.set_index("request_id")
    for before, after in (("r0", "r2"), ("r2", "r4"), ("r1", "r3")):
        assert rows["scheduled_s"][after] >= rows["last_token_s"][before]
        assert rows["scheduled_s"][after] <= rows["sent_s"][after]


@pytest.mark.parametrize("processes", [1, 2])
def test_no_more_are_in_flight_than_there_are_users(processes: int) -> None:
    think = LognormalPause(0.03, sigma=0.0)
    users = with_users(evenly(24, 10, 3), 4, think=think, seed=1)
    run = load(users, closed_loop=True, concurrency=4, processes=processes)
    rows = run.requests
    assert (rows["status"] == "finished").all()
    assert sorted(rows["request_id"]) == sorted(f"r{n}" for n in range(24))
    edges = [*((s, 1) for s in rows["sent_s"]), *((e, -1) for e in rows["last_token_s"])]
    in_flight = np.cumsum([step for _, step in sorted(edges)])
    assert in_flight.max() == 4
    user = rows["request_id"].str[1:].astype(int) % 4
    for _, own in rows.groupby(user):
        own = own.sort_values("scheduled_s")
        thought_s = own["scheduled_s"].to_numpy()[1:] - own["last_token_s"].to_numpy()[:-1]
        assert (thought_s >= 0.03).all()


def test_users_go_on_after_a_failure() -> None:
    users = with_users(evenly(8, 10, 2), 2)
    run = load(users, "status:code=500,every=3", closed_loop=True, concurrency=2)
    assert outcome(run)["failures"] == {"http_5xx": 2}
    assert run.requests["sent_s"].notna().all()


@pytest.mark.parametrize("processes", [1, 2])
def test_users_without_an_end_send_until_the_duration(processes: int) -> None:
    users = with_users(evenly(4, 10, 1), 4)
    run = load(
        users,
        closed_loop=True,
        concurrency=4,
        endless=True,
        duration_s=0.6,
        processes=processes,
    )
    rows = run.requests
    assert (rows["status"] == "finished").all()
    assert rows["scheduled_s"].max() < 0.6
    assert rows["request_id"].is_unique
    assert {name.partition("+")[0] for name in rows["request_id"]} == {f"r{n}" for n in range(4)}
    assert len(rows) > 12  # 12 answers of 50 ms each would have time; a busy machine makes fewer
    assert outcome(run)["too_late"] == 0


def test_the_report_of_a_closed_loop_says_what_it_hides() -> None:
    run = load(with_users(evenly(4, 10, 2), 2), closed_loop=True, concurrency=2)
    text = " ".join(render_report(run).split())
    assert "4 requests of even.jsonl in a closed loop of 2 users; openai completions" in text
    assert CLOSED_LOOP in text


def test_a_follow_up_waits_for_the_answer_and_thinks() -> None:
    run = load(chats(3, 1, 2), processes=2)
    rows = run.requests.set_index("request_id")
    assert (rows["status"] == "finished").all()
    for child, parent in (("c0.1", "c0.0"), ("c0.2", "c0.1"), ("c2.1", "c2.0")):
        assert rows["scheduled_s"][child] - rows["last_token_s"][parent] >= 0.05
    assert run.scenario["closed_loop"] is True
    assert "follow-ups after answers" in render_report(run)


def test_follow_ups_of_a_failed_parent_are_not_sent_and_say_why() -> None:
    """The third request to arrive is c2.0; its follow-ups have no answer to follow."""
    run = load(chats(2, 1, 3), "status:code=500,every=3", mock={"ttft_ms": 300})
    rows = run.requests.set_index("request_id")
    assert rows["error"]["c2.0"] == "http_5xx"
    assert rows["error"][["c2.1", "c2.2"]].tolist() == ["orphaned", "orphaned"]
    assert rows["status"][["c2.1", "c2.2"]].tolist() == ["cancelled", "cancelled"]
    assert rows["sent_s"][["c2.1", "c2.2"]].isna().all()
    assert (rows["scheduled_s"] < 60).all()
    assert outcome(run)["failures"] == {"http_5xx": 1, "orphaned": 2}
    assert outcome(run)["first_messages"]["orphaned"] == "not sent: no answer to its parent 'c2.0'"
    assert rows["status"][["c0.0", "c0.1", "c1.0"]].tolist() == ["finished"] * 3


def test_a_cut_stream_is_no_answer() -> None:
    run = load(chats(2), "cut:after=1")
    assert run.requests["error"].tolist() == ["broken_stream", "orphaned"]


def test_long_conversations_of_a_dead_parent_are_all_listed() -> None:
    run = load(chats(1500), "status:code=500")
    assert outcome(run)["failures"] == {"http_5xx": 1, "orphaned": 1499}


def test_in_an_open_loop_follow_ups_go_at_their_stamps() -> None:
    trace = Trace(tuple(r for r in chats(2) if r.arrival_s < 1), "chats.jsonl")
    follower = Request("c0.1", 0.02, 5, 3, parent_ids=("c0.0",), delay_s=9.0)
    run = load(Trace((*trace, follower), "chats.jsonl"), closed_loop=False)
    assert run.requests["scheduled_s"].tolist() == [0.0, 0.02]
    assert ends_s(run)["c0.0"] > run.requests["sent_s"][1]


@pytest.mark.quiet
def test_follow_ups_after_the_duration_are_counted_and_in_no_row() -> None:
    run = load(chats(4, 1), duration_s=0.15)
    assert run.requests["request_id"].tolist() == ["c0.0", "c1.0", "c0.1"]
    assert outcome(run)["too_late"] == 2
    assert "2 follow-ups not sent: due after the duration" in render_report(run)


def test_an_interrupted_conversation_lists_what_was_never_sent() -> None:
    """Nothing listens after the first two: the second refusal, 20 ms later, ends the test."""
    with ScriptedServer(lambda body: stream_of(1)).running() as server:

        def dying(body: dict[str, object]) -> Reply:
            if len(server.arrivals) == 2:
                server.stop_listening()
            return stream_of(1)

        server.script = dying
        run = run_load_test(
            probe(server.url), chats(3, 3), options=LoadOptions(give_up_after_s=0.001)
        )
    rows = run.requests.set_index("request_id")
    assert rows["status"][["c0.0", "c1.0"]].tolist() == ["finished", "finished"]
    assert rows["error"][["c0.1", "c1.1"]].tolist() == ["connect", "connect"]
    assert rows["error"][["c0.2", "c1.2"]].tolist() == ["orphaned", "cancelled"]
    assert outcome(run)["stopped"] == "the endpoint was gone (no connection for 0.001 s)"


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
