"""Roots and their followers stay together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.loadtest.plan.request_dependencies import (
    begun_before,
    roots_and_followers,
    split_among,
)
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.mock_load import GAPS_MS, paired_trace


@given(GAPS_MS, st.integers(1, 5), st.booleans())
def test_shares_keep_families_together(gaps_ms: list[int], parts: int, closed: bool) -> None:
    trace = paired_trace(gaps_ms)
    shares = split_among(trace, parts, closed_loop=closed)
    assert sorted(r.request_id for s in shares for r in s) == sorted(r.request_id for r in trace)
    for share in shares:
        ids = {r.request_id for r in share}
        assert not closed or all(r.parent_id in ids for r in share if r.parent_id)
    sizes = [len(roots_and_followers(share, closed_loop=closed)[0]) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@given(GAPS_MS, st.floats(0, 30))
def test_a_duration_cuts_whole_families(gaps_ms: list[int], end_s: float) -> None:
    trace = paired_trace(gaps_ms)
    kept = begun_before(trace, end_s, closed_loop=True)
    expected = {r.request_id for r in trace if not r.parent_id and r.arrival_s < end_s}
    expected |= {r.request_id for r in trace if r.parent_id in expected}
    assert {r.request_id for r in kept} == expected


def test_a_request_that_waits_for_itself_is_refused() -> None:
    requests = [Request(n, 0.0, 1, 1, parent_id=p, delay_s=1.0) for n, p in ("ab", "ba")]
    with pytest.raises(LoadTestError, match="request 'a' waits for itself, by way of 'b'"):
        roots_and_followers(Trace(tuple(requests), "cycle"), closed_loop=True)
