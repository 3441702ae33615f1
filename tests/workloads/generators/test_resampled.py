"""Other traffic of the same kind, and users who send a trace in turn."""

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.pauses import ExponentialPause, LognormalPause
from servetwin.workloads.generators.resampled import ROUNDS, Resampling, sent_by_users
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace


def made(gaps_s: list[float], **same: object) -> Trace:
    arrivals_s = np.cumsum(gaps_s).tolist()
    return Trace(
        tuple(
            replace(Request(f"r{place}", at_s, 10 + place % 7, 5), **same)  # type: ignore[arg-type]
            for place, at_s in enumerate(arrivals_s)
        ),
        "made",
    )


def draw(trace: Trace, seed: int = 0) -> Trace:
    return Resampling(trace).draw(np.random.default_rng(seed))


def poisson(seed: int, count: int) -> list[float]:
    return np.random.default_rng(seed).exponential(size=count).tolist()  # type: ignore[no-any-return]


def test_a_poisson_process_is_drawn_request_by_request_in_order() -> None:
    trace = made(poisson(3, 400))
    assert Resampling(trace).block == 1
    drawn = draw(trace)
    arrivals_s = [request.arrival_s for request in drawn]
    assert arrivals_s == sorted(arrivals_s)
    assert len(drawn) == len(trace)
    assert len({request.request_id for request in drawn}) == len(trace)
    left_out = {r.request_id for r in trace} - {r.request_id for r in drawn}
    assert len(left_out) == pytest.approx(400 / np.e, rel=0.15)
    assert draw(trace) == drawn
    assert draw(trace, seed=1) != drawn


def test_blocks_of_copies_are_of_no_sequence_alone() -> None:
    """Sequences name the blocks that only they have by negative numbers."""
    trace = made(poisson(3, 50), prefix_block_ids=(), block_tokens=16)
    own = tuple(replace(r, prefix_block_ids=(0, 1 + n)) for n, r in enumerate(trace))
    drawn = draw(trace.replaced(own, "with blocks"))
    ids = [request.prefix_block_ids for request in drawn]
    assert {first for first, _ in ids} == {0}
    assert len({second for _, second in ids}) == len(trace)
    assert min(map(min, ids)) >= 0


def test_copies_of_blocks_with_negative_numbers_have_others() -> None:
    """Readers refuse such numbers; a trace that a program makes may have them."""
    trace = made(poisson(3, 50), prefix_block_ids=(), block_tokens=16)
    own = tuple(replace(r, prefix_block_ids=(-200 - n,)) for n, r in enumerate(trace))
    drawn = [request.prefix_block_ids[0] for request in draw(replace(trace, requests=own))]
    assert len(set(drawn)) == 50
    copies = [block for block in drawn if block > -200]
    assert sorted(copies) == list(range(1, 1 + len(copies))) != []


def test_bursts_stay_together() -> None:
    """Twenty quick requests, then twenty slow ones: neighbours depend."""
    trace = made(([0.01] * 20 + [1.0] * 20) * 20)
    assert Resampling(trace).block > 10
    gaps_s = np.diff([request.arrival_s for request in draw(trace)])
    alike = np.isclose(gaps_s[1:], gaps_s[:-1])
    assert alike.mean() > 0.8


def test_a_conversation_is_drawn_as_a_whole() -> None:
    turns = [
        Request("a", 0.0, 10, 5),
        Request("b", 1.0, 10, 5),
        Request("a2", 2.5, 20, 5, parent_ids=("a",), delay_s=1.0),
        Request("c", 3.0, 10, 5),
        Request("a3", 7.0, 30, 5, parent_ids=("a2",), delay_s=1.0),
    ]
    for seed in range(20):
        drawn = draw(Trace(tuple(turns), "made"), seed)
        by_id = {request.request_id: request for request in drawn}
        for request in drawn:
            if request.parent_ids:
                parent = by_id[request.parent_ids[0]]
                apart_s = request.arrival_s - parent.arrival_s
                assert apart_s == pytest.approx(4.5 if parent.parent_ids else 2.5)
        kinds = Counter(request.request_id.split("~")[0] for request in drawn)
        assert kinds["a"] == kinds["a2"] == kinds["a3"]


def test_a_copy_finds_in_the_cache_what_others_share_and_not_its_own_prompt() -> None:
    prompts = [Request(f"r{n}", float(n), 32, 5, (100, 200 + n), 16) for n in range(30)]
    drawn = draw(Trace(tuple(prompts), "made"))
    assert any("~" in request.request_id for request in drawn)
    assert {request.prefix_block_ids[0] for request in drawn} == {100}
    own = [request.prefix_block_ids[1] for request in drawn]
    assert len(set(own)) == len(own)


def test_a_trace_with_a_rate_stays_one_with_a_rate() -> None:
    trace = made([0.0] * 11 + [5.0])
    assert all(draw(trace, seed).span_s > 0 for seed in range(40))
    assert draw(made([0.0] * 12)).span_s == 0


def test_the_mean_length_is_that_of_the_trace() -> None:
    trace = sample_trace()
    resampling = Resampling(trace)
    rng = np.random.default_rng(0)
    means = [np.mean([r.total_tokens for r in resampling.draw(rng)]) for _ in range(50)]
    tokens = [request.total_tokens for request in trace]
    assert np.mean(means) == pytest.approx(np.mean(tokens), rel=0.02)
    assert np.std(means) == pytest.approx(np.std(tokens) / np.sqrt(len(trace)), rel=0.3)


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
    assert (first.parent_ids, first.delay_s, first.arrival_s) == ((), None, 1.0)
    assert (second.parent_ids, second.delay_s, second.arrival_s) == (("r0",), 2.0, 3.0)
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
        Request("s.1", 3.0, 20, 5, session_id="s", parent_ids=("s.0",), delay_s=0.5),
        Request("s.2", 9.0, 30, 5, session_id="s", parent_ids=("s.1",)),
    )
    alone = Request("alone", 4.0, 10, 5)
    sent = {
        r.request_id: r for r in sent_by_users(Trace((*session, alone), "made"), 1, think=TWO_S)
    }
    assert [sent[name].delay_s for name in ("s.0", "s.1", "s.2")] == [None, 0.5, 2.0]
    assert (sent["alone"].parent_ids, sent["alone"].delay_s) == (("s.2",), 2.0)


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
