"""A trace sent several times over."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.loadtest.plan.repeats import Repeats, looped
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.mock_load import GAPS_MS, paired_trace


@given(GAPS_MS, st.integers(1, 5))
def test_a_loop_keeps_counts_gaps_and_sharing(gaps_ms: list[int], times: int) -> None:
    trace = paired_trace(gaps_ms)
    again = looped(trace, times)
    rounds = [again.requests[n * len(trace) : (n + 1) * len(trace)] for n in range(times)]
    arrivals_s = np.array([[r.arrival_s for r in part] for part in rounds])
    assert np.allclose(np.diff(arrivals_s), np.diff(arrivals_s[0]))
    assert np.allclose(np.diff(arrivals_s, axis=0), trace.span_s + 1 / trace.rate_per_s)
    assert len({r.request_id for r in again}) == times * len(trace)
    assert len({r.prefix_block_ids for r in again}) == times * len({*range(0, len(trace), 2)})
    lengths = [[(r.prompt_tokens, r.output_tokens) for r in part] for part in rounds]
    assert lengths == [lengths[0]] * times
    known = {r.request_id for r in again}
    assert all(r.parent_id is None or r.parent_id in known for r in again)
    assert again.rate_per_s == pytest.approx(trace.rate_per_s)


def test_requests_that_all_come_at_once_cannot_be_looped() -> None:
    trace = Trace((Request("a", 0.0, 1, 1), Request("b", 0.0, 1, 1)), "ties.jsonl")
    with pytest.raises(LoadTestError, match=r"--loop 2: all requests of ties.jsonl arrive at once"):
        looped(trace, 2)


def test_answers_of_a_later_round_have_the_ids_that_its_prompts_repeat() -> None:
    trace = Trace(
        (
            Request("a", 0.0, 8, 8, (1, 2), 4, answer_block_ids=(3, 9)),
            Request("b", 1.0, 17, 1, (1, 2, 3, 9), 4),
        ),
        "made",
    )
    asked, after = (Repeats(trace).again(request, 1) for request in trace)
    assert asked.prefix_block_ids + asked.answer_block_ids == after.prefix_block_ids
    assert not set(after.prefix_block_ids) & {1, 2, 3, 9}
