"""The schedule: sends in the order of their times, and users whose requests start over."""

import pytest

from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.plan.schedule import build_schedule
from servetwin.loadtest.plan.users import with_users
from servetwin.loadtest.run.client import LoadOptions
from servetwin.workloads.errors import LoadTestError
from tests.support.mock_load import paired_trace, trace_of


def test_the_schedule_is_sorted_and_ties_keep_their_order() -> None:
    schedule = build_schedule(trace_of(0.2, 0.1, 0.1, 0.0), Endpoint("http://h/v1", "m"))
    assert [(send.send_at_s, send.request.request_id) for send in schedule.roots] == [
        (0.0, "r3"),
        (0.1, "r1"),
        (0.1, "r2"),
        (0.2, "r0"),
    ]


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(LoadTestError, match=r"made\.jsonl: there is no request to send"):
        build_schedule(trace_of(), Endpoint("http://h/v1", "m"))


def test_users_come_round_again_with_prompts_of_their_own() -> None:
    made = with_users(paired_trace([1, 1, 1, 1]), 2)
    options = LoadOptions(concurrency=2, endless=True, duration_s=1.0)
    schedule = build_schedule(made, Endpoint("http://h/v1", "m", prompt="ids"), options)
    send, all_sent = schedule.roots[1], []
    for _ in range(5):
        all_sent.append(send)
        (send,) = schedule.after(send)
    assert [s.request.request_id for s in all_sent] == ["r1", "r3", "r1+1", "r3+1", "r1+2"]
    assert len({s.body for s in all_sent}) == 5
    assert not schedule.exhausted
