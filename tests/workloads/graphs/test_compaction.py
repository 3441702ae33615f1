"""Compaction: which prompts a summary shortens, what they share, and what that does to a server."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.errors import TraceError
from servetwin.workloads.graphs.compaction import compact
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.statistics import endless_hits
from servetwin.workloads.trace import Trace
from tests.support.prefix_chains import leading

BLOCK, HEAD, SUMMARY = 10, 20, 10


def session(name: str, turns: Sequence[tuple[int, int]], first_id: int = 100) -> list[Request]:
    """Turns of so many fresh and output tokens, in blocks of 10; sessions share blocks 0 and 1."""
    requests: list[Request] = []
    tokens = 0
    for number, (fresh, output) in enumerate(turns):
        prompt = tokens + fresh
        tokens = prompt + output
        ids = [place if place < 2 else first_id + place for place in range(tokens // BLOCK)]
        full = prompt // BLOCK
        requests.append(
            Request(
                f"{name}.{number}", float(number), prompt, output, tuple(ids[:full]), BLOCK, name,
                (f"{name}.{number - 1}",) if number else (), number, 2.0 if number else None,
                HEAD, answer_block_ids=tuple(ids[full:]),
            )
        )  # fmt: skip
    return requests


STORY = Trace(tuple(session("a", [(40, 10), (10, 10), (20, 20), (10, 10), (20, 10)], 0)), "story")


def test_a_summary_replaces_the_history_of_a_session_that_is_too_long() -> None:
    made = compact(STORY, 100, SUMMARY)
    assert [(r.request_id, r.prompt_tokens, r.output_tokens) for r in made] == [
        ("a.0", 40, 10),
        ("a.1", 60, 10),
        ("a.2/summary", 70, 10),
        ("a.2", 20 + 10 + 20, 20),
        ("a.3", 80, 10),
        ("a.4/summary", 90, 10),
        ("a.4", 20 + 10 + 20, 10),
    ]
    assert made.notes == (
        "beyond 100 tokens a summary of 10 replaces the history: 2 requests added",
    )


def test_the_turn_waits_for_its_summary_and_that_for_what_the_turn_waited_for() -> None:
    waits = {r.request_id: (r.parent_ids, r.delay_s, r.turn) for r in compact(STORY, 100, SUMMARY)}
    assert waits["a.2/summary"] == (("a.1",), 2.0, None)
    assert waits["a.2"] == (("a.2/summary",), 0.0, 2)
    assert waits["a.3"] == (("a.2",), 2.0, 3)


def test_a_cache_has_the_history_for_the_summary_and_the_head_alone_after_it() -> None:
    made = compact(STORY, 100, SUMMARY)
    assert dict(zip((r.request_id for r in made), endless_hits(made), strict=True)) == {
        "a.0": 0,
        "a.1": 50,
        "a.2/summary": 70,
        "a.2": HEAD,
        "a.3": 70,
        "a.4/summary": 90,
        "a.4": HEAD,
    }


def test_a_recorded_prompt_that_is_shorter_than_what_was_summarised_begins_anew() -> None:
    shorter = replace(session("a", [(30, 5)])[0], request_id="a.5", arrival_s=9.0)
    made = compact(STORY.replaced([*STORY, shorter], ""), 100, SUMMARY)
    assert made.requests[-1] == shorter


turns = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 60)), min_size=1, max_size=12)


@given(st.lists(turns, min_size=1, max_size=3), st.integers(1, 300), st.integers(1, 60))
def test_every_turn_is_sent_once_and_no_longer_than_it_must_be(
    sessions: list[list[tuple[int, int]]], limit: int, summary: int
) -> None:
    told = [each for n, one in enumerate(sessions) for each in session(f"{n}", one, 1000 * n)]
    trace = Trace(tuple(sorted(told, key=lambda r: r.arrival_s)), "drawn")
    made = compact(trace, limit, summary)
    turns = [r for r in made if r.turn is not None]
    assert [(r.request_id, r.output_tokens) for r in turns] == [
        (r.request_id, r.output_tokens) for r in trace
    ]
    begun = HEAD + -(-summary // BLOCK) * BLOCK
    for recorded, now in zip(trace, turns, strict=True):
        fresh = sessions[int(now.session_id or 0)][now.turn or 0][0]
        assert now.prompt_tokens <= recorded.prompt_tokens
        assert now.total_tokens <= max(limit, begun + BLOCK + fresh + now.output_tokens)
        if recorded.total_tokens <= limit and now.parent_ids == recorded.parent_ids:
            assert now == recorded
    for request in made:
        ids = (*request.prefix_block_ids, *request.answer_block_ids)
        assert len(ids) == request.total_tokens // BLOCK or request.kind == "summary"
        assert len(request.prefix_block_ids) == request.prompt_tokens // BLOCK
    for name in {r.session_id for r in made}:
        for before, after in pairwise(r for r in made if r.session_id == name):
            whole = (*before.prefix_block_ids, *before.answer_block_ids)
            shared = leading(whole, after.prefix_block_ids)
            is_new = before.kind == "summary"
            assert shared == (min(HEAD // BLOCK, len(whole)) if is_new else len(whole))


def test_a_limit_that_no_session_reaches_changes_nothing() -> None:
    assert compact(STORY, 200, SUMMARY).requests == STORY.requests


@pytest.mark.parametrize(
    ("limit", "summary", "prompt", "line"),
    [
        (0, 10, None, "contexts and summaries have 1 token or more, not 0 and 10"),
        (10, 0, None, "contexts and summaries have 1 token or more, not 10 and 0"),
        (10, 10, "text", "real prompts have the lengths that they have, and are not compacted"),
    ],
)
def test_what_cannot_be_compacted_is_refused(
    limit: int, summary: int, prompt: str | None, line: str
) -> None:
    requests = [replace(request, prompt=prompt) for request in STORY]
    with pytest.raises(TraceError, match=line):
        compact(STORY.replaced(requests, ""), limit, summary)


def simulated(trace: Trace) -> Run:
    policies = PolicyConfig(
        block_tokens=BLOCK, kv_tokens=10_000, max_model_len=1_000, prefix_cache=True
    )
    step_time = LinearStepTime.of({"constant": 0.001, "rows_from_0": 0.001})
    return simulate_cluster(trace, [Pool(policies, step_time)])


def test_the_what_if_says_what_a_compaction_costs_in_hits_tokens_and_time() -> None:
    """A cache of prompts finds 40, 60, 90, 120; else 40, 60, the head, 50, 80, the head."""
    before, after = (simulated(each).requests for each in (STORY, compact(STORY, 100, SUMMARY)))
    assert [run["cached_tokens"].sum() for run in (before, after)] == [310, 270]
    assert [run["prompt_tokens"].sum() for run in (before, after)] == [460, 440]
    assert [run["output_tokens"].sum() for run in (before, after)] == [60, 80]
    more_s = 1e-3 * (20 + 2 * 9) + 1e-3 * 20  # rows of prompts and answers, and steps
    tasks_s = [run["task_s"].max() for run in (before, after)]
    assert tasks_s[1] - tasks_s[0] == pytest.approx(more_s, abs=1e-6)
