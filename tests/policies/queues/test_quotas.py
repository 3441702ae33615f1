"""Quotas of tenants: buckets, and what cannot be one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.queues.quotas import TokenBuckets, parse_quotas
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.request import Request
from tests.support.checked import request


def of(tenant: str | None, tokens: int) -> Request:
    return replace(request("a", prompt=tokens - 1, output=1), tenant=tenant)


def test_a_bucket_fills_with_time_up_to_its_burst() -> None:
    buckets = TokenBuckets(parse_quotas("acme=10/100"))
    said = [buckets.refusal(of("acme", n), at) for n, at in ((100, 5), (1, 5), (20, 7), (21, 9.05))]
    assert [refusal is None for refusal in said] == [True, False, True, False]
    assert said[1] is not None
    assert said[1].kind == "over_quota"
    assert said[1].reason == "1 tokens are more than the 0 left of the burst of 100"
    assert buckets.refusal(of("acme", 100), 1000) is None, "full again, and no fuller"
    assert buckets.refusal(of("acme", 1), 1000) is not None


def test_tenants_have_buckets_of_their_own_and_others_that_of_the_star() -> None:
    buckets = TokenBuckets(parse_quotas("acme=1/50,*=1/10"))
    for tenant, tokens, is_held in (
        ("acme", 50, True), ("x", 10, True), ("y", 10, True), ("x", 1, False),
        (None, 10, True), (None, 1, False),
    ):  # fmt: skip
        assert (buckets.refusal(of(tenant, tokens), 0.0) is None) == is_held
    named_only = TokenBuckets(parse_quotas("acme=1/50"))
    assert named_only.refusal(of("x", 10**9), 0.0) is None


@given(
    asked=st.lists(st.tuples(st.integers(2, 40), st.floats(0, 3)), min_size=1, max_size=40),
    rate=st.floats(0.5, 20), burst=st.integers(2, 60),
)  # fmt: skip
def test_no_window_passes_more_than_its_burst_and_what_flowed_in(
    asked: list[tuple[int, float]], rate: float, burst: int
) -> None:
    buckets, now_s = TokenBuckets({"*": (rate, float(burst))}), 0.0
    passed = []
    for tokens, gap_s in asked:
        now_s += gap_s
        if buckets.refusal(of(None, tokens), now_s) is None:
            passed.append((now_s, tokens))
    for first, (from_s, _) in enumerate(passed):
        total = 0
        for at_s, tokens in passed[first:]:
            total += tokens
            assert total <= burst + rate * (at_s - from_s) + 1e-6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("acme", "'acme' is not TENANT=TOKENS_PER_S/BURST"),
        ("acme=5", "acme=5: not TENANT=TOKENS_PER_S/BURST"),
        ("acme=5/", "acme=5/: not TENANT="),
        ("acme=0/5", "acme=0/5: not TENANT="),
        ("acme=5/nan", "acme=5/nan: not TENANT="),
        ("a=1/1,a=2/2", "a is given twice"),
    ],
)
def test_what_is_no_quota_is_one_line(text: str, said: str) -> None:
    with pytest.raises(PolicyError, match=r"^quotas: ") as refused:
        parse_quotas(text)
    assert said in str(refused.value)
