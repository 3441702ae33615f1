"""Lanes: which requests they send, whatever the server does, and what a cache finds of them."""

import gzip
import heapq
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.graphs.lane_rules import LaneRules
from servetwin.workloads.graphs.lanes import LaneSource
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.trace_rows import shared

AGENTS = "agentic_weka"
Serve = Callable[[Request], tuple[float, bool]]
"""How long the answer to a request takes, and whether there is one."""


Times = dict[str, tuple[float, float]]
"""When a request was sent and when it ended, by its name."""


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Trees of sessions that spawn and join; some requests outgrow a context of 50 tokens."""
    requests: list[Request] = []
    for tree in range(draw(st.integers(1, 4))):
        last: dict[str, str] = {}  # request of each session
        for place in range(draw(st.integers(1, 8))):
            goes_on = bool(last) and draw(st.booleans())
            session = draw(st.sampled_from([*last])) if goes_on else f"{tree}/{place}"
            others = st.sets(st.integers(0, max(0, place - 1)), min_size=1, max_size=2)
            parents = {f"{tree}.{n}" for n in draw(others)} if place else set()
            parents |= {last[session]} if goes_on else set()
            last[session] = f"{tree}.{place}"
            one = Request(
                f"{tree}.{place}", float(tree + 10 * place), draw(st.integers(1, 60)), 3,
                parent_ids=tuple(sorted(parents)), session_id=session,
                delay_s=draw(st.sampled_from([None, 0.0, 1.0, 99.0])) if parents else None,
                prefix_block_ids=(place,), block_tokens=1,
            )  # fmt: skip
            requests.append(one)
    rules = LaneRules(draw(st.integers(1, 5)), 5.0, 0.0, 1.0, 60.0, draw(st.integers(0, 9)))
    return Trace(tuple(sorted(requests, key=lambda r: r.arrival_s)), "drawn", lanes=rules)


def driven(
    trace: Trace, serve: Serve
) -> tuple[LaneSource[Request], dict[str, tuple[float, float]]]:
    """Send what the lanes say to a server of its own kind; return when each began and ended."""
    source = LaneSource(trace, lambda request: request, context_tokens=50)
    times: Times = {}
    order = count()
    due = [(request.arrival_s, next(order), request, False) for request in source.roots]
    heapq.heapify(due)
    while due:
        at_s, _, request, is_sent = heapq.heappop(due)
        took_s, answered = serve(request)
        unsent = not is_sent and source.why_not_sent(request.request_id)
        if not is_sent and not unsent:
            times[request.request_id] = at_s, at_s + took_s
            heapq.heappush(due, (at_s + took_s, next(order), request, True))
            continue
        answered = answered and not unsent and request.total_tokens <= 50
        for following, next_s in source.ended(request.request_id, at_s, answered):
            assert following.arrival_s == next_s >= at_s
            heapq.heappush(due, (next_s, next(order), following, False))
    return source, times


def slow(request: Request) -> tuple[float, bool]:
    return 1.0 + request.prompt_tokens / 10, True


def moody(request: Request) -> tuple[float, bool]:
    """Takes its time by the name, and gives every fifth request no answer."""
    number = sum(map(ord, request.request_id))
    return 0.5 + number % 7, number % 5 > 0


def whole_replays(source: LaneSource[Request]) -> dict[int, list[str]]:
    """What was sent of the replays that have drained after turn 0, by their number."""
    lines: dict[int, list[str]] = {}
    for name, (replay, request) in source.sent.items():
        if not replay.left and replay.is_whole:
            line = f"{replay.lane} {name} {request.parent_ids} {request.prompt_tokens}"
            lines.setdefault(replay.number, []).append(line)
    return {number: sorted(sent) for number, sent in lines.items()}


@given(traces())
def test_what_is_sent_depends_on_the_seed_and_not_on_the_server(trace: Trace) -> None:
    (first, _), (second, _) = driven(trace, slow), driven(trace, moody)
    assert first.warm_up == second.warm_up
    ours, theirs = whole_replays(first), whole_replays(second)
    both = ours.keys() & theirs.keys()
    assert [ours[number] for number in both] == [theirs[number] for number in both]


@given(traces())
def test_each_lane_runs_its_trees_one_after_the_other_and_never_a_child_before_its_parents(
    trace: Trace,
) -> None:
    source, times = driven(trace, slow)
    for name, (replay, request) in source.sent.items():
        if name not in times:
            continue
        assert times[name][0] < source.end_s
        if name in source.warm_up:
            assert times[name][0] == 0.0
            continue
        assert times[name][0] >= source.measured_from_s
        for parent in request.parent_ids:
            sent = f"{parent}+{replay.number}" if replay.number else parent
            if sent in times:
                assert times[name][0] >= times[sent][1]
    for lane in range(source.rules.lanes):
        own = [replay for replay in source.replays if replay.lane == lane]
        assert all(not replay.left for replay in own[:-1])
        assert [replay.number for replay in own] == [
            lane + turn * source.rules.lanes for turn in range(len(own))
        ]


@given(traces())
def test_a_session_that_outgrew_the_context_sends_nothing_more(trace: Trace) -> None:
    source, times = driven(trace, slow)
    for name, (replay, request) in source.sent.items():
        if request.total_tokens > 50:
            later = [
                other
                for other, (of, each) in source.sent.items()
                if of is replay and each.session_id == request.session_id
                if other in times and name in times and times[other][0] > times[name][1]
            ]
            assert not later
    overflowed = {
        (replay.number, request.session_id)
        for replay, request in source.sent.values()
        if request.total_tokens > 50
        if f"{request.request_id}+{replay.number}" in times or not replay.number
    }
    assert source.figures()["overflowed"] == len(overflowed)


@given(traces())
def test_every_round_has_each_tree_once_and_no_two_replays_share_a_block(trace: Trace) -> None:
    seen: dict[int, int] = {}

    def serve(request: Request) -> tuple[float, bool]:
        number = int(request.request_id.partition("+")[2] or 0)
        for block in request.prefix_block_ids:
            assert seen.setdefault(block, number) == number
        return 1.0, True

    source, _ = driven(trace, serve)
    trees = source.figures()["traces"]
    roots = {replay.number: replay.root.request_id for replay in source.replays}
    for turn in range(max(roots) // trees + 1):
        of_round = [roots[n] for n in range(turn * trees, (turn + 1) * trees) if n in roots]
        assert len({*of_round}) == len(of_round)


def recorded_blocks(
    records: list[Mapping[str, Any]], agent: str
) -> Iterator[tuple[str, list[int]]]:
    """The ids of every request of a session file, by the name that the reader gives it."""
    for index, record in enumerate(records):
        if "requests" in record:
            yield from recorded_blocks(record["requests"], f"{agent}/{index}")
        else:
            yield f"{agent}:{index}", record["hash_ids"]


def simulated(trace: Trace, kv_tokens: int) -> Run:
    policies = PolicyConfig(
        max_model_len=1_000_000, kv_tokens=kv_tokens, block_tokens=64, prefix_cache=True,
        max_seqs=512, token_budget=2_000_000,
    )  # fmt: skip
    return simulate_cluster(trace, [Pool(policies, LinearStepTime.of({"constant": 0.001}))])


@pytest.mark.slow
def test_the_hits_of_an_endless_cache_are_those_of_an_independent_count() -> None:
    """A trie over the raw ids of the files, of each replay its own."""
    folder = shared(AGENTS)
    raw: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.json.gz")):
        session = json.loads(gzip.decompress(path.read_bytes()))
        raw |= recorded_blocks(session["requests"], session["id"])
    rules = LaneRules(16, first_from=0.0, first_to=0.0, duration_s=1000.0)
    trace = replace(read_trace(folder), lanes=rules)
    run = simulated(trace, 64 * 2**24)
    tries: dict[str, dict[int, Any]] = {}
    counted = []
    for name, prompt_tokens in run.requests[["request_id", "prompt_tokens"]].to_numpy().tolist():
        request, _, replay = name.partition("+")
        node, blocks, is_known = tries.setdefault(replay, {}), 0, True
        for block in raw[request]:
            is_known = is_known and block in node
            blocks += is_known
            node = node.setdefault(block, {})
        counted.append(min(64 * blocks, prompt_tokens))
    assert run.requests["endless_cached_tokens"].tolist() == counted
    assert run.requests["cached_tokens"].tolist() == counted
    shares = []
    for kv_tokens in (2_000_000, 2_500_000, 3_000_000, 4_000_000):
        rows = simulated(trace, kv_tokens).requests
        rows = rows[rows["status"] == "finished"]
        assert (rows["cached_tokens"] <= rows["endless_cached_tokens"]).all()
        shares.append(rows["cached_tokens"].sum() / rows["prompt_tokens"].sum())
    assert shares == sorted(shares)
    assert shares[0] < shares[-1] <= sum(counted) / run.requests["prompt_tokens"].sum() + 1e-9
