"""A trace as the requests of users that wait for their answers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.loadtest.plan.request_dependencies import roots_and_followers
from servetwin.loadtest.plan.users import with_users
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.generators.pauses import ExponentialPause, LognormalPause
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.mock_load import paired_trace


@given(st.integers(1, 9), st.integers(0, 40), st.sampled_from([None, ExponentialPause(2.0)]))
def test_users_take_the_requests_in_turn(users: int, more: int, think: Any) -> None:
    trace = Trace(tuple(Request(f"r{n}", n / 7, 5, 3) for n in range(users + more)), "even.jsonl")
    made = with_users(trace, users, think=think, ramp_up_s=9.0, seed=3)
    by_id = {r.request_id: r for r in made}
    assert len(by_id) == len(trace)
    for number, request in enumerate(trace):
        asked = by_id[request.request_id]
        before = by_id[f"r{number - users}"] if number >= users else None
        assert asked.tenant == f"user-{number % users + 1}"
        assert asked.parent_id == (before.request_id if before else None)
        start_s = before.arrival_s + (asked.delay_s or 0) if before else number * 9.0 / users
        assert asked.arrival_s == pytest.approx(start_s, abs=2e-6)
    roots, followers = roots_and_followers(made, closed_loop=True)
    assert [r.request_id for r in roots] == [f"r{user}" for user in range(users)]
    assert sum(map(len, followers.values())) == more


def test_think_times_are_those_of_their_law() -> None:
    trace = Trace(tuple(Request(f"r{n}", 0.0, 5, 3) for n in range(4000)), "many.jsonl")
    made = with_users(trace, 10, think=ExponentialPause(2.0), seed=1)
    delays_s = np.array([r.delay_s for r in made], dtype=float)
    half_width_s = 4 * 2.0 / np.sqrt(len(made))
    assert abs(delays_s.mean() - 2.0) < half_width_s
    assert with_users(trace, 10, think=ExponentialPause(2.0), seed=1) == made
    assert with_users(trace, 10, think=ExponentialPause(2.0), seed=2) != made


def test_the_trace_of_users_is_one_that_can_be_read_again(tmp_path: Path) -> None:
    trace = paired_trace([10, 20, 30])
    made = with_users(trace, 2, think=LognormalPause(2.0))
    write_trace(made, tmp_path / "users.jsonl")
    read = read_trace(tmp_path / "users.jsonl")
    assert [replace(r, source_line=None) for r in read] == list(made)


def test_more_users_than_requests_are_refused() -> None:
    with pytest.raises(LoadTestError, match=r"--concurrency 3: pairs\.jsonl has 2 requests"):
        with_users(paired_trace([5]), 3)
