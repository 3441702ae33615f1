"""Conversations grow and chain; users wait; both name the parent of each turn."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.arrivals import ConstantArrivals, PoissonArrivals
from servetwin.workloads.generators.conversations import (
    ConversationSpec,
    agentic,
    generate_conversations,
    multi_turn,
)
from servetwin.workloads.generators.generate import FOLLOWERS_NOTE
from servetwin.workloads.generators.lengths import FixedTokens, LognormalTokens, UniformTokens
from servetwin.workloads.generators.pauses import ExponentialPause
from servetwin.workloads.graphs.links import links_of, tasks
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.statistics import prefix_statistics, session_samples, statistics
from servetwin.workloads.trace import Trace
from tests.support.conversation_parts import LENGTHS, by_id, of_twenty_users, sessions_of

pytestmark = pytest.mark.slow

STORY = ConversationSpec(
    2,
    ConstantArrivals(0.1),
    turns=FixedTokens(3),
    opening=FixedTokens(6),
    fresh=FixedTokens(3),
    output=FixedTokens(4),
    pause=ExponentialPause(5.0),
    head_tokens=8,
    block_tokens=4,
)
CHAT = multi_turn(300, PoissonArrivals(0.5), LognormalTokens(log(100), 0.5))


def test_a_short_story() -> None:
    trace = generate_conversations(STORY, 0)
    first, second = sessions_of(trace).values()
    assert [r.prompt_tokens for r in first] == [8 + 6, 14 + 4 + 3, 21 + 4 + 3]
    assert [r.prefix_block_ids for r in first] == [
        (0, 1, 2),
        (0, 1, 2, 3, 4),
        (0, 1, 2, 3, 4, 5, 6),
    ]
    assert [r.prefix_block_ids[:3] for r in second] == [(0, 1, 7)] * 3
    assert [r.answer_block_ids for r in first] == [(3,), (5,), ()]  # 4 ends in the fresh tokens
    assert [r.request_id for r in first] == ["generated:1.0", "generated:1.1", "generated:1.2"]
    assert [r.parent_ids for r in first] == [(), ("generated:1.0",), ("generated:1.1",)]
    assert [r.turn for r in first] == [0, 1, 2]
    assert (first[0].arrival_s, second[0].arrival_s) == (0.0, 10.0)
    assert (first[0].delay_s, first[0].session_id) == (None, "generated:1")
    assert FOLLOWERS_NOTE in trace.notes


def test_compaction_keeps_the_head_and_a_share_of_the_limit() -> None:
    spec = replace(STORY, conversations=1, turns=FixedTokens(5), limit_tokens=30)
    requests = generate_conversations(spec, 0).requests
    # 14 + 4, 21 + 4, then 28 + 4 is beyond 30: 9 (30 % of 30, head included) + 3, and on
    assert [r.prompt_tokens for r in requests] == [14, 21, 12, 19, 26]
    assert [len(r.prefix_block_ids) for r in requests] == [3, 5, 3, 4, 6]
    assert requests[2].prefix_block_ids == (0, 1, 5)
    assert requests[4].prefix_block_ids[:3] == (0, 1, 5)


@given(
    st.integers(0, 40), st.integers(1, 12), st.integers(44, 200), st.floats(0, 0.9),
    st.integers(0, 99),
)  # fmt: skip
def test_no_turn_passes_the_limit_and_every_prompt_extends_the_one_before(
    head: int, block: int, limit: int, kept: float, seed: int
) -> None:
    spec = ConversationSpec(
        3, PoissonArrivals(1.0), UniformTokens(1, 8), UniformTokens(1, 90), UniformTokens(1, 50),
        UniformTokens(1, 90), ExponentialPause(1.0), head, limit, kept, block,
    )  # fmt: skip
    for requests in sessions_of(generate_conversations(spec, seed)).values():
        for request in requests:
            assert 1 <= request.total_tokens <= limit
            assert request.prompt_tokens > head
            assert len(request.prefix_block_ids) == request.prompt_tokens // block
        for before, after in pairwise(requests):
            shared = 0
            for left, right in zip(before.prefix_block_ids, after.prefix_block_ids, strict=False):
                shared += left == right
            ids = before.prefix_block_ids + before.answer_block_ids
            if before.answer_block_ids:
                assert ids == after.prefix_block_ids[: len(ids)]
                assert len(ids) == before.total_tokens // block
            if after.prompt_tokens > before.total_tokens:
                assert shared in (before.prompt_tokens // block, head // block)
            else:
                assert shared == head // block


@pytest.mark.parametrize(
    "trace", [generate_conversations(CHAT, 1), of_twenty_users(1)], ids=["chat", "loop"]
)
def test_followers_arrive_a_delay_after_their_parent(trace: Trace) -> None:
    by_id = {request.request_id: request for request in trace}
    assert len(by_id) == len(trace)
    arrivals_s = [request.arrival_s for request in trace]
    assert arrivals_s == sorted(arrivals_s)
    followers = [request for request in trace if request.parent_ids]
    assert len(followers) > len(trace) // 2
    for request in followers:
        parent = by_id[request.parent_ids[0]]
        assert request.delay_s is not None
        assert request.arrival_s == round(parent.arrival_s + request.delay_s, 6)
        assert (request.session_id, request.tenant) == (parent.session_id, parent.tenant)
    assert all(request.delay_s is None for request in trace if not request.parent_ids)


def test_same_seed_same_trace_other_seed_other_trace() -> None:
    assert generate_conversations(CHAT, 3) == generate_conversations(CHAT, 3)
    assert generate_conversations(CHAT, 3).requests != generate_conversations(CHAT, 4).requests
    assert of_twenty_users(3) == of_twenty_users(3)
    assert of_twenty_users(3).requests != of_twenty_users(4).requests


def test_each_law_of_a_conversation_has_its_own_stream() -> None:
    base = by_id(generate_conversations(CHAT, 3))
    slower = by_id(generate_conversations(replace(CHAT, pause=ExponentialPause(9.0)), 3))
    assert [replace(r, arrival_s=0, delay_s=None) for r in slower] == [
        replace(r, arrival_s=0, delay_s=None) for r in base
    ]
    shorter = by_id(generate_conversations(replace(CHAT, output=FixedTokens(1)), 3))
    assert [(r.request_id, r.arrival_s) for r in shorter] == [
        (r.request_id, r.arrival_s) for r in base
    ]
    assert fresh(shorter) == fresh(base)


def fresh(requests: list[Request]) -> list[float]:
    found: list[float] = session_samples(requests).fresh_tokens.tolist()
    return found


def test_chats_have_the_turns_and_think_times_they_claim() -> None:
    figures = statistics(generate_conversations(replace(CHAT, conversations=4000), 0))["sessions"]
    error = 4 * 5.5 / sqrt(4000)  # the standard deviation of the turns is about 5.5
    assert figures["turns"]["mean"] == pytest.approx(3.5, abs=error)
    assert figures["turns"]["p50"] == 2
    assert 7 <= figures["turns"]["p90"] <= 9
    assert figures["gap_s"]["p50"] == pytest.approx(120, rel=4 * 1.5 * 1.25 / sqrt(10_000))
    assert figures["fresh_tokens"]["p50"] == pytest.approx(60, rel=4 * 1.2 * 1.25 / sqrt(10_000))


def test_agents_look_like_public_sessions() -> None:
    """Medians 46 steps (mean 70) and 24 k first tokens; 0.96 of tokens known; 1-3 % compactions."""
    trace = generate_conversations(replace(agentic(150, PoissonArrivals(0.1)), block_tokens=512), 0)
    figures = statistics(trace)
    turns = figures["sessions"]["turns"]
    error = 4 * 1.25 * 0.916 / sqrt(150)
    assert log(turns["p50"] / 46) == pytest.approx(0, abs=error)
    assert turns["mean"] == pytest.approx(70, abs=4 * 80 / sqrt(150))
    firsts = [r.prompt_tokens for r in trace if r.turn == 0]
    assert log(float(np.median(firsts)) / 24_000) == pytest.approx(
        0, abs=4 * 1.25 * 0.2 / sqrt(150)
    )
    assert figures["prefix"]["hit_per_token"] == pytest.approx(0.96, abs=0.01)
    shrunk = sum(
        after.prompt_tokens < before.total_tokens
        for one in sessions_of(trace).values()
        for before, after in pairwise(one)
    )
    assert 0.01 < shrunk / len(trace) < 0.03
    assert max(r.total_tokens for r in trace) <= 200_000


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replace(STORY, conversations=0), "at least 1 conversation, not 0"),
        (lambda: replace(STORY, head_tokens=-1), "a head has 0 or more tokens and a block 1"),
        (lambda: replace(STORY, block_tokens=0), "a head has 0 or more tokens and a block 1"),
        (lambda: replace(STORY, compacted_share=1.0), "the compacted share is 0 to 1, not 1"),
        (lambda: replace(STORY, limit_tokens=9), "a limit of 9 tokens leaves no room after a head"),
        (lambda: generate_conversations(STORY, -1), "a seed must be 0 or positive, not -1"),
        (lambda: of_twenty_users(-1), "a seed must be 0 or positive, not -1"),
    ],
)
def test_impossible_specifications(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TraceError) as raised:
        make()
    assert message in str(raised.value)


def test_each_law_of_a_closed_loop_has_its_own_stream() -> None:
    base = by_id(of_twenty_users(3))
    slower = by_id(of_twenty_users(3, think=ExponentialPause(9.0)))
    assert [(r.prompt_tokens, r.output_tokens, r.prefix_block_ids) for r in slower] == [
        (r.prompt_tokens, r.output_tokens, r.prefix_block_ids) for r in base
    ]
    other = replace(LENGTHS, output=FixedTokens(1))
    outputs = by_id(of_twenty_users(3, lengths=other, prefixes=None))
    assert [(r.arrival_s, r.delay_s, r.prompt_tokens) for r in outputs] == [
        (r.arrival_s, r.delay_s, r.prompt_tokens) for r in base
    ]


def test_users_think_ask_and_think_again() -> None:
    users = sessions_of(of_twenty_users(0))
    assert {len(requests) for requests in users.values()} == {15}
    assert set(users) == {f"user-{n}" for n in range(1, 21)}
    thinks = [r.delay_s for one in users.values() for r in one if r.delay_s is not None]
    assert len(thinks) == 20 * 14
    assert np.log(thinks).mean() == pytest.approx(log(10), abs=4 * 1.5 / sqrt(280))
    assert prefix_statistics(users["user-1"]) is not None


def test_each_turn_waits_for_the_sub_agents_of_the_one_before() -> None:
    spec = replace(multi_turn(9, PoissonArrivals(1.0), FixedTokens(20)), sub_agents=2)
    trace = generate_conversations(spec, 3)
    alone = generate_conversations(replace(spec, sub_agents=0), 3)
    by_id = {request.request_id: request for request in trace}
    joins = [request for request in trace if len(request.parent_ids) > 1]
    assert len(joins) == len(alone) - 9
    for join in joins:
        before, *lasts = (by_id[parent] for parent in join.parent_ids)
        assert (before.session_id, before.turn) == (join.session_id, (join.turn or 0) - 1)
        assert len({last.session_id for last in lasts} | {join.session_id}) == 3
        ready_s = max(parent.arrival_s for parent in (before, *lasts))
        assert join.arrival_s == pytest.approx(ready_s + (join.delay_s or 0))
    firsts = [r for r in trace if r.turn == 0 and r.parent_ids]
    assert len(firsts) == 2 * len(joins)
    assert {r.delay_s for r in firsts} == {0.0}
    assert len({*tasks(links_of(trace)).values()}) == 9
    with pytest.raises(TraceError, match="0 or more sub-agents, not -1"):
        replace(spec, sub_agents=-1)
