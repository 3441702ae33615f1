"""Transforms are exact, pure, and leave a note."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.errors import TraceError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import (
    at_rate,
    clip_context,
    limit,
    limit_reasoning,
    scale_rate,
    scale_tokens,
    spread_ties,
    window,
    with_estimates,
)
from tests.support.prefix_chains import chained_traces, shared_ids, shared_tokens

TRACE = Trace(
    (
        Request("a", 10.0, 100, 10, reasoning_tokens=9, shared_prefix_tokens=33),
        Request("b", 10.0, 25, 4, parent_ids=("a",)),
        Request("c", 14.0, 3, 1, parent_ids=("b",)),
        Request("d", 18.0, 7, 900),
    ),
    "story",
    clock_s=4.0,
)

Change = Callable[[Trace, float], Trace]
CHANGES: list[Change] = [
    scale_rate,
    at_rate,
    lambda trace, factor: scale_tokens(trace, prompt=factor),
    lambda trace, factor: scale_tokens(trace, output=factor),
]


def arrivals(trace: Trace) -> list[float]:
    return [r.arrival_s for r in trace]


def names(trace: Trace) -> str:
    return "".join(r.request_id for r in trace)


def test_scale_rate() -> None:
    scaled = scale_rate(TRACE, 2)
    assert arrivals(scaled) == [0.0, 0.0, 2.0, 4.0]
    assert (scaled.clock_s, scaled.notes) == (2.0, ("rate scaled by 2",))


@pytest.mark.parametrize("rate_per_s", [1e-320, 1e-12])
def test_a_rate_at_which_a_trace_would_last_too_long_is_refused(rate_per_s: float) -> None:
    with pytest.raises(TraceError, match="a trace lasts at most 1e"):
        at_rate(TRACE, rate_per_s)


def test_scale_rate_scales_the_delays_of_followers() -> None:
    parent = Request("a", 2.0, 5, 1)
    follower = Request("b", 8.0, 5, 1, parent_ids=("a",), delay_s=6.0)
    scaled = scale_rate(Trace((parent, follower), "pair"), 4)
    assert [(r.arrival_s, r.delay_s) for r in scaled] == [(0.0, None), (1.5, 1.5)]


def test_at_rate() -> None:
    assert at_rate(TRACE, 0.75).rate_per_s == 0.75
    assert arrivals(at_rate(TRACE, 0.75)) == [0.0, 0.0, 2.0, 4.0]


def test_at_rate_wants_a_rate() -> None:
    with pytest.raises(TraceError, match="has no rate to scale"):
        at_rate(limit(TRACE, 2), 1.0)


def test_scale_tokens() -> None:
    scaled = scale_tokens(TRACE, prompt=0.1, output=0.5)
    assert [r.prompt_tokens for r in scaled] == [10, 2, 1, 1]
    assert [r.output_tokens for r in scaled] == [5, 2, 1, 450]
    assert (scaled.requests[0].reasoning_tokens, scaled.requests[0].shared_prefix_tokens) == (4, 3)
    assert scaled.notes == ("prompts scaled by 0.1, outputs by 0.5",)


THINKING = Trace(
    (
        Request("a", 0.0, 10, 100, reasoning_tokens=70, answer_block_ids=(7, 8)),
        Request("b", 1.0, 10, 100, reasoning_tokens=20, answer_block_ids=(9,)),
        Request("c", 2.0, 10, 100, answer_block_ids=(6,)),
        Request("d", 3.0, 10, 30, reasoning_tokens=30),
    ),
    "made",
)


@pytest.mark.parametrize(
    ("most", "outputs", "hidden", "said"),
    [
        (
            0,
            [30, 80, 100, 1],
            [0, 0, None, 0],
            "119 tokens less in 3 requests",
        ),
        (
            1,
            [31, 81, 100, 1],
            [1, 1, None, 1],
            "117 tokens less in 3 requests",
        ),
        (30, [60, 100, 100, 30], [30, 20, None, 30], "40 tokens less in 1 request"),
        (70, [100, 100, 100, 30], [70, 20, None, 30], "0 tokens less in 0 requests"),
    ],
)
def test_a_budget_cuts_what_is_hidden_and_leaves_what_is_visible(
    most: int, outputs: list[int], hidden: list[int | None], said: str
) -> None:
    cut = limit_reasoning(THINKING, most)
    assert [request.output_tokens for request in cut] == outputs
    assert [request.reasoning_tokens for request in cut] == hidden
    assert cut.notes[-1].startswith("at most")
    assert cut.notes[-1].endswith(said)
    for before, after in zip(THINKING, cut, strict=True):
        assert after.answer_block_ids == (before.answer_block_ids if before == after else ())
        if after.output_tokens > 1:
            assert after.output_tokens - (after.reasoning_tokens or 0) == (
                before.output_tokens - (before.reasoning_tokens or 0)
            )
    assert limit_reasoning(cut, most).requests == cut.requests


@pytest.mark.parametrize(
    ("trace", "most", "message"),
    [
        (THINKING, -1, "the --reasoning-budget must be 0 or positive, not -1"),
        (TRACE.replaced(TRACE.requests[2:], ""), 5, "no request of the trace has reasoning_tokens"),
    ],
)
def test_budgets_that_cannot_be(trace: Trace, most: int, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        limit_reasoning(trace, most)


def test_scale_tokens_keeps_sharing_where_blocks_do_not_divide() -> None:
    ids = tuple(range(10))
    trace = Trace(
        (Request("a", 0, 160, 1, ids, 16), Request("b", 0, 160, 1, (*ids[:8], 90, 91), 16)), "x"
    )
    left, right = scale_tokens(trace, prompt=0.1)
    assert (left.prompt_tokens, left.block_tokens) == (16, 2)
    # 8 of 10 old blocks were shared: 12.8 of 16 tokens, so 6 of 8 new blocks
    assert (left.prefix_block_ids, right.prefix_block_ids) == (
        (0, 1, 2, 3, 4, 5, 6, 7),
        (0, 1, 2, 3, 4, 5, 8, 9),
    )


def test_window_rebases_and_detaches_children_of_lost_parents() -> None:
    part = window(TRACE, 12, 18)
    assert (names(part), arrivals(part)) == ("c", [2.0])
    assert part.requests[0].parent_ids == ()
    assert part.notes == ("window of 12 to 18 s",)
    assert window(TRACE).requests == TRACE.requests


def test_limit() -> None:
    assert limit(TRACE, 2).requests == TRACE.requests[:2]
    assert limit(TRACE, 9).requests == TRACE.requests


def test_clip_context_counts_what_it_drops() -> None:
    clipped = clip_context(TRACE, 109)
    assert names(clipped) == "bc"
    assert [r.parent_ids for r in clipped] == [(), ("b",)]
    assert clipped.notes == ("2 requests beyond 109 tokens dropped",)
    assert clip_context(TRACE, 110).requests[0] == TRACE.requests[0]


def test_spread_ties_without_a_clock_changes_nothing() -> None:
    trace = replace(TRACE, clock_s=None)
    spread = spread_ties(trace, 1)
    assert (spread.requests, spread.notes) == (
        trace.requests,
        ("no coarse clock: no ties to spread",),
    )


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(0, 99))
def test_spread_ties_moves_within_the_tick_and_keeps_file_order(
    ticks: list[int], seed: int
) -> None:
    stamps = [3.0 * tick for tick in sorted(ticks)]
    trace = Trace(tuple(Request(str(i), at, 1, 1) for i, at in enumerate(stamps)), "x", 3.0)
    spread = spread_ties(trace, seed)
    assert [r.request_id for r in spread] == [r.request_id for r in trace]
    assert all(0 <= new - old < 3.0 for new, old in zip(arrivals(spread), stamps, strict=True))
    assert arrivals(spread) == sorted(arrivals(spread))
    assert spread == spread_ties(trace, seed)
    assert spread.clock_s is None


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=30),
    st.floats(1e-3, 1e3),
)
def test_scale_rate_keeps_order_and_undoes_itself(stamps: list[float], factor: float) -> None:
    stamps.sort()
    trace = Trace(tuple(Request(str(i), at, 1, 1) for i, at in enumerate(stamps)), "x")
    scaled = scale_rate(trace, factor)
    assert arrivals(scaled) == sorted(arrivals(scaled))
    assert arrivals(scaled)[0] == 0.0
    back = arrivals(scale_rate(scaled, 1 / factor))
    assert back == pytest.approx([at - stamps[0] for at in stamps], rel=1e-12)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_factors_must_be_positive(change: Change, factor: float) -> None:
    with pytest.raises(TraceError, match=f"must be a positive number, not {factor:g}$"):
        change(TRACE, factor)


@pytest.mark.parametrize("bounds", [(-1, 5), (5, 5), (6, 5), (float("nan"), 5), (0, float("nan"))])
def test_a_window_needs_its_bounds_in_order(bounds: tuple[float, float]) -> None:
    with pytest.raises(TraceError, match="a window wants 0 <= start < end"):
        window(TRACE, *bounds)


def test_limits_must_be_positive() -> None:
    with pytest.raises(TraceError, match="at least 1 request, not 0"):
        limit(TRACE, 0)
    with pytest.raises(TraceError, match="at least 1 token, not 0"):
        clip_context(TRACE, 0)


def test_estimates_err_as_asked_around_the_truth() -> None:
    requests = tuple(Request(str(i), float(i), 10, 400) for i in range(4000))
    estimated = with_estimates(Trace(requests, "made"), cv=0.5, seed=3)
    found = np.array([r.estimated_output_tokens for r in estimated], float)
    assert found.mean() == pytest.approx(400, rel=0.04)
    assert found.std() / found.mean() == pytest.approx(0.5, rel=0.08)
    exact = with_estimates(Trace(requests, "made"), cv=0.0, seed=3)
    assert {r.estimated_output_tokens for r in exact} == {400}
    with pytest.raises(TraceError, match="cv of the estimates"):
        with_estimates(Trace(requests, "made"), cv=-1.0, seed=3)


factors = st.sampled_from([0.01, 0.1, 0.29, 0.5, 0.7, 0.999, 1.7, 2.0, 3.3])


@given(chained_traces(), factors)
def test_scaled_prompts_share_what_they_shared(trace: Trace, factor: float) -> None:
    scaled = scale_tokens(trace, prompt=factor)
    pairs = zip(combinations(trace, 2), combinations(scaled, 2), strict=True)
    for (left, right), (new_left, new_right) in pairs:
        assert left.block_tokens is not None
        assert new_left.block_tokens is not None
        shared = shared_ids(left, right) * left.block_tokens * Fraction(str(factor))
        new = shared_ids(new_left, new_right)
        shorter = min(len(new_left.prefix_block_ids), len(new_right.prefix_block_ids))
        assert new >= min(floor(shared / new_left.block_tokens), shorter)
        assert shared_tokens(new_left, new_right) <= (max(1, round(shared)) if shared else 0)


@given(chained_traces(), factors)
def test_scaled_ids_are_valid(trace: Trace, factor: float) -> None:
    position: dict[int, int] = {}
    for old, new in zip(trace, scale_tokens(trace, prompt=factor), strict=True):
        assert old.block_tokens is not None
        assert new.block_tokens is not None
        assert new.prompt_tokens == max(1, round(old.prompt_tokens * Fraction(str(factor))))
        assert new.block_tokens == max(1, round(old.block_tokens * Fraction(str(factor))))
        if len(old.prefix_block_ids) * old.block_tokens >= old.prompt_tokens:
            assert len(new.prefix_block_ids) == ceil(new.prompt_tokens / new.block_tokens)
        else:
            assert len(new.prefix_block_ids) * new.block_tokens <= new.prompt_tokens
        for index, block_id in enumerate(new.prefix_block_ids):
            assert position.setdefault(block_id, index) == index  # an id has one place


@given(chained_traces())
def test_scaling_only_outputs_leaves_prompts_alone(trace: Trace) -> None:
    assert scale_tokens(trace, output=1.0).requests == trace.requests
