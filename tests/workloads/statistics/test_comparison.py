"""Real against real passes, unlike against unlike fails, and what says little is not judged."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.generators.arrivals import GammaArrivals, PoissonArrivals
from servetwin.workloads.generators.conversations import generate_conversations, multi_turn
from servetwin.workloads.generators.generate import WorkloadSpec, generate
from servetwin.workloads.generators.lengths import (
    EmpiricalLengths,
    FixedTokens,
    IndependentLengths,
    LognormalTokens,
)
from servetwin.workloads.generators.modulated import OnOffArrivals
from servetwin.workloads.generators.prefixes import PrefixGroups
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.comparison import Check, compare, ks_distance
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import scale_rate
from tests.support.trace_rows import shared_trace

pytestmark = pytest.mark.slow

CODE = "azure/AzureLLMInferenceTrace_code.csv.gz"
CONVERSATION = "mooncake/conversation_trace.jsonl.gz"
SPEC = WorkloadSpec(
    4000,
    PoissonArrivals(4.0),
    IndependentLengths(LognormalTokens(6, 1), LognormalTokens(4, 1)),
    PrefixGroups(32, 256),
)


def checks(trace: Trace, reference: Trace, resampled: bool = False) -> dict[str, Check]:
    return {check.name: check for check in compare(trace, reference, resampled)}


def failing(found: dict[str, Check]) -> set[str]:
    return {name for name, check in found.items() if check.passes is False}


def test_a_trace_agrees_with_itself_exactly() -> None:
    trace = generate(SPEC, 0)
    found = checks(trace, trace)
    assert failing(found) == set()
    for check in found.values():
        assert check.apart in (None, 1.0 if check.measure == "ratio" else 0.0)
    # 1,000 s hold 50 windows of 10 s but not of 60 s
    assert {name for name, c in found.items() if c.passes is None} == {
        "dispersion over 60 s",
        "dispersion over 300 s",
    }
    assert found["dispersion over 60 s"].note == "under 50 windows"


def test_two_seeds_of_one_specification_agree() -> None:
    assert failing(checks(generate(SPEC, 1), generate(SPEC, 2))) == set()


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        ({"arrivals": GammaArrivals(4.0, 2.0)}, {"CV of gaps", "local CV of gaps"}),
        ({"arrivals": PoissonArrivals(6.0)}, {"rate /s"}),
        ({"lengths": replace(SPEC.lengths, output=FixedTokens(50))}, {"output tokens"}),  # type: ignore[type-var]
        ({"prefixes": PrefixGroups(32, 64)}, {"hits per block, ideal", "hits per token, ideal"}),
        ({"prefixes": PrefixGroups(32, 256, block_tokens=32)}, set()),
        ({"prefixes": None}, set()),
    ],
)
def test_an_unlike_trace_fails_where_it_is_unlike(
    change: dict[str, object], fails: set[str]
) -> None:
    spec = replace(SPEC, **change)  # type: ignore[arg-type]
    found = failing(checks(generate(spec, 1), generate(SPEC, 2)))
    assert fails <= found
    assert bool(found) == bool(fails)


def test_blocks_of_other_sizes_are_not_compared() -> None:
    coarse = generate(replace(SPEC, prefixes=PrefixGroups(32, 256, block_tokens=32)), 0)
    check = checks(coarse, generate(SPEC, 0))["hits per block, ideal"]
    assert (check.passes, check.apart, check.note) == (None, None, "block sizes differ")


def test_resampled_lengths_must_be_closer() -> None:
    trace = generate(SPEC, 0)
    shifted = Trace(
        tuple(replace(r, prompt_tokens=round(r.prompt_tokens * 1.18)) for r in trace), "shifted"
    )
    assert 0.05 < (checks(shifted, trace)["prompt tokens"].apart or 0) < 0.10
    assert checks(shifted, trace)["prompt tokens"].passes is True
    assert checks(shifted, trace, resampled=True)["prompt tokens"].passes is False


def test_the_rate_may_differ_by_three_standard_errors() -> None:
    """3 sqrt(IDC / n): 3 % at 10 k Poisson requests."""
    trace = generate(replace(SPEC, requests=10_000, prefixes=None), 0)
    check = checks(trace, trace)["rate /s"]
    assert check.high == pytest.approx(1.03, abs=0.01)
    assert (check.low + check.high) / 2 == pytest.approx(1)
    assert checks(scale_rate(trace, 1.2), trace)["rate /s"].passes is False


def test_burstier_references_allow_more() -> None:
    trace = generate(replace(SPEC, arrivals=GammaArrivals(4.0, 5.0)), 0)
    check = checks(trace, trace)["CV of gaps"]
    assert (check.low, check.high) == (0.75, 1.3)


def test_sessions_are_compared() -> None:
    spec = multi_turn(400, PoissonArrivals(1.0), LognormalTokens(5, 1))
    found = checks(generate_conversations(spec, 0), generate_conversations(spec, 1))
    assert found["turns per session"].passes
    longer = generate_conversations(replace(spec, turns=FixedTokens(9)), 1)
    assert checks(longer, generate_conversations(spec, 1))["turns per session"].passes is False


@pytest.mark.parametrize(
    "requests", [(), (Request("a", 0.0, 5, 1),), (Request("a", 0.0, 5, 1), Request("b", 0.0, 5, 1))]
)
def test_small_traces_are_compared_without_error(requests: tuple[Request, ...]) -> None:
    trace = Trace(requests, "small")
    for check in [*compare(trace, generate(SPEC, 0)), *compare(generate(SPEC, 0), trace)]:
        assert check.passes is not None or check.note
        assert check.as_dict()["passes"] == check.passes


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=30),
    st.lists(st.integers(0, 9), min_size=1, max_size=30),
)
def test_ks_distance(left: list[int], right: list[int]) -> None:
    """By its definition, on the whole grid."""
    ours, theirs = np.array(left, np.float64), np.array(right, np.float64)
    expected = max(abs((ours <= x).mean() - (theirs <= x).mean()) for x in range(10))
    assert ks_distance(ours, theirs) == pytest.approx(expected)
    assert ks_distance(ours, theirs[:0]) is None


def test_the_code_preset_is_like_the_real_hour() -> None:
    real = shared_trace(CODE)
    spec = WorkloadSpec(len(real), OnOffArrivals(real.rate_per_s), EmpiricalLengths.of(real))
    found = checks(generate(spec, 0), real, resampled=True)
    assert failing(found) == set()
    assert {"CV of gaps", "dispersion over 60 s"} <= {n for n, c in found.items() if c.passes}


def test_gaps_of_a_coarse_clock_are_not_judged() -> None:
    real = shared_trace(CONVERSATION)
    found = checks(real, real)
    assert failing(found) == set()
    for name in ("CV of gaps", "local CV of gaps", "dispersion over 1 s"):
        assert (found[name].passes, found[name].note) == (None, "ties above 20%")
    assert found["dispersion over 10 s"].passes
