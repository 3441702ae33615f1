"""Users who send a trace: in turn, one conversation after the other, with equal think times."""

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.pauses import ExponentialPause, LognormalPause
from servetwin.workloads.generators.resampled import ROUNDS, sent_by_users
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

TWO_S = LognormalPause(2.0, sigma=0.0)


def trace(count: int) -> Trace:
    return Trace(tuple(Request(f"r{i}", float(i), 10 + i, 5) for i in range(count)), "made")


def test_two_users_take_requests_in_turn_and_think_before_each() -> None:
    sent = sent_by_users(trace(50), 2, think=TWO_S)
    of = defaultdict[str, list[Request]](list)
    for request in sent:
        of[str(request.tenant)].append(request)
    assert [r.request_id for r in of["user-1"]][:3] == ["r0", "r2", "r4"]
    assert [r.request_id for r in of["user-2"]][:3] == ["r1", "r3", "r5"]
    first, second, *_ = of["user-1"]
    assert (first.parent_id, first.delay_s, first.arrival_s) == (None, None, 1.0)
    assert (second.parent_id, second.delay_s, second.arrival_s) == ("r0", 2.0, 3.0)
    assert of["user-2"][0].arrival_s == 2.0
    assert len(sent) == 50


def test_a_short_trace_is_sent_again_under_other_ids_and_blocks() -> None:
    one = Request("a", 0.0, 32, 4, (7, 8), 16)
    other = Request("b", 1.0, 32, 4, (7, 9), 16)
    sent = sent_by_users(Trace((one, other), "made"), 1)
    assert len(sent) == ROUNDS
    assert len({request.request_id for request in sent}) == ROUNDS
    blocks = [request.prefix_block_ids for request in sent]
    assert {ids[0] for ids in blocks} == {7}, "what conversations share stays shared"
    assert len({ids[1] for ids in blocks}) == ROUNDS, "what is their own does not"
    assert min(min(ids) for ids in blocks) >= 0


def test_turns_of_a_session_keep_their_pauses_and_the_next_one_follows_the_last_turn() -> None:
    session = (
        Request("s.0", 0.0, 10, 5, session_id="s"),
        Request("s.1", 3.0, 20, 5, session_id="s", parent_id="s.0", delay_s=0.5),
        Request("s.2", 9.0, 30, 5, session_id="s", parent_id="s.1"),
    )
    alone = Request("alone", 4.0, 10, 5)
    sent = {
        r.request_id: r for r in sent_by_users(Trace((*session, alone), "made"), 1, think=TWO_S)
    }
    assert [sent[name].delay_s for name in ("s.0", "s.1", "s.2")] == [None, 0.5, 2.0]
    assert (sent["alone"].parent_id, sent["alone"].delay_s) == ("s.2", 2.0)


@given(users=st.integers(1, 30), others=st.integers(1, 30), seed=st.integers(0, 3))
def test_a_conversation_has_the_same_think_time_whatever_the_number_of_users(
    users: int, others: int, seed: int
) -> None:
    think = ExponentialPause(2.0)
    few, many = (sent_by_users(trace(40), n, think=think, seed=seed) for n in (users, others))
    delays = {r.request_id: r.delay_s for r in many}
    for request in few:
        other = delays.get(request.request_id)
        assert None in (other, request.delay_s) or other == request.delay_s
    assert sent_by_users(trace(40), users, think=think, seed=seed) == few


@pytest.mark.parametrize(
    ("requests", "users", "said"), [(3, 0, "at least 1 user"), (0, 1, "no req")]
)
def test_what_cannot_be_is_refused(requests: int, users: int, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        sent_by_users(replace(trace(requests)), users)
