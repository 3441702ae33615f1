"""Traces that are compared; prefixes that are shared, and the length of a block."""

from collections import OrderedDict
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
from servetwin.workloads.generators.resampled import block_length
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.comparison import Check, compare, ks_distance
from servetwin.workloads.statistics.statistics import (
    lru_hits,
    prefix_statistics,
    reblocked,
    reuse_shares,
    why_no_hits,
)
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import scale_rate
from tests.support.effort import only_in_ci
from tests.support.prefix_chains import chains, request
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


ARXIV = "mooncake/arxiv_trace_window_93.jsonl"
AGENTS = "agentic_weka"
SHARES = (0.01, 0.05, 0.10, 0.25, 0.50)
LRU_TABLE = {
    ARXIV: (
        "0.1373 / 0.1424 | 0.2712 / 0.2812 | 0.3216 / 0.3334 | 0.3533 / 0.3663 | 0.3533 / 0.3663"
    ),
    CONVERSATION: (
        "0.0525 / 0.0535 | 0.1958 / 0.1996 | 0.2789 / 0.2844 | 0.3535 / 0.3604 | 0.3631 / 0.3703"
    ),
}
COARSER_TABLE = {
    ARXIV: "0.3020 / 0.3263 | 0.2829 / 0.3263 | 0.1581 / 0.1946",
    CONVERSATION: "0.3274 / 0.3401 | 0.2977 / 0.3219 | 0.2483 / 0.2927",
    AGENTS: "0.9629 / 0.9629 | 0.9619 / 0.9624 | 0.9600 / 0.9614",
}
REUSE_TABLE = {ARXIV: "0.0192 / 0.6172", CONVERSATION: "0.2415 / 0.3165"}


def naive_lru_hits(requests: list[Request], capacity: int) -> int:
    """A cache of ``capacity`` blocks that is played through, evicting one block at a time."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for one in requests:
        leading = 0
        for block_id in one.prefix_block_ids:
            if block_id not in cache:
                break
            leading += 1
        hits += leading
        for block_id in reversed(one.prefix_block_ids):
            cache[block_id] = None
            cache.move_to_end(block_id)
        while len(cache) > capacity:
            cache.popitem(last=False)
    return hits


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), min_size=1, max_size=30),
    st.floats(0, 1),
)
def test_lru_hits_are_those_of_a_cache_played_through(paths: list[list[int]], share: float) -> None:
    requests = chains(paths)
    distinct = len({i for one in requests for i in one.prefix_block_ids})
    blocks = sum(len(one.prefix_block_ids) for one in requests)
    [(by_block, _)] = lru_hits(requests, [share])
    assert by_block * blocks == pytest.approx(naive_lru_hits(requests, int(share * distinct)))


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), min_size=1, max_size=30))
def test_a_cache_of_all_blocks_hits_as_an_unlimited_one(paths: list[list[int]]) -> None:
    requests = chains(paths)
    ideal = prefix_statistics(requests)
    assert ideal is not None
    assert lru_hits(requests, [1.0]) == [(ideal["hit_per_block"], ideal["hit_per_token"])]
    rates = [by_block for by_block, _ in lru_hits(requests, [0, 0.2, 0.4, 0.6, 0.8, 1])]
    assert rates == sorted(rates)
    assert rates[0] == 0


def pairs(text: str) -> list[str]:
    return [cell.strip() for cell in text.split("|")]


@pytest.mark.parametrize("name", LRU_TABLE)
@pytest.mark.slow
def test_lru_hits_of_the_reference_table(name: str) -> None:
    found = lru_hits(shared_trace(name).requests, SHARES)
    assert [f"{b:.4f} / {t:.4f}" for b, t in found] == pairs(LRU_TABLE[name])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=only_in_ci if name == AGENTS else ()) for name in COARSER_TABLE],
)
@pytest.mark.slow
def test_coarser_blocks_of_the_reference_table(name: str) -> None:
    requests = shared_trace(name).requests
    found = [prefix_statistics(reblocked(requests, factor)) or {} for factor in (2, 4, 8)]
    printed = [f"{f['hit_per_block']:.4f} / {f['hit_per_token']:.4f}" for f in found]
    assert printed == pairs(COARSER_TABLE[name])


@pytest.mark.parametrize("name", REUSE_TABLE)
@pytest.mark.slow
def test_reuse_of_the_reference_table(name: str) -> None:
    reused, top = reuse_shares(shared_trace(name).requests)
    assert f"{reused:.4f} / {top:.4f}" == REUSE_TABLE[name]


@pytest.mark.parametrize(
    ("ids", "prompt_tokens", "factor", "coarse"),
    [
        ((1, 2, 3, 4), 16, 2, (2, 4)),
        ((1, 2, 3, 4), 14, 2, (2, 4)),
        ((1, 2, 3), 12, 2, (2, 3)),
        ((1, 2, 3), 15, 2, (2, 3)),
        ((1,), 3, 8, (1,)),
        ((), 3, 2, ()),
    ],
)
def test_reblocking(
    ids: tuple[int, ...], prompt_tokens: int, factor: int, coarse: tuple[int, ...]
) -> None:
    [found] = reblocked([request(ids, prompt_tokens)], factor)
    assert (found.prefix_block_ids, found.block_tokens) == (coarse, 4 * factor)


def test_a_request_without_ids_has_nothing_to_reblock() -> None:
    plain = Request("r", 0.0, 5, 1)
    assert reblocked([plain], 2) == [plain]


def test_reuse_by_hand() -> None:
    assert reuse_shares([request((1, 2), 8), request((1, 3), 8), request((1,), 4)]) == (1 / 3, 1.0)
    assert reuse_shares([request((1, 2), 8)]) == (0.0, None)


def asked(prompt: tuple[int, ...], answer: tuple[int, ...] = ()) -> Request:
    return Request(
        "r", 0.0, 16, 16, prefix_block_ids=prompt, answer_block_ids=answer, block_tokens=16
    )


@pytest.mark.parametrize(
    ("requests", "why"),
    [
        ([], "no request has prefix ids"),
        ([asked(()), asked(())], "no request has prefix ids"),
        ([asked((1, 2)), asked((3,)), asked(())], "no two prompts begin alike"),
        ([asked((1,)), asked((2,)), asked((1, 4))], None),
        ([asked((1,), (2,)), asked((3,)), asked((2,))], None),
        ([asked((3,)), asked((1,), (3,))], "no two prompts begin alike"),
    ],
)
def test_why_a_prefix_cache_cannot_hit(requests: list[Request], why: str | None) -> None:
    assert why_no_hits(requests) == why


def autoregressive(share: float, count: int, seed: int) -> list[float]:
    values, rng = [0.0], np.random.default_rng(seed)
    for noise in rng.normal(size=count - 1):
        values.append(share * values[-1] + noise)
    return values


def test_what_does_not_depend_has_blocks_of_one() -> None:
    lengths = [
        block_length(np.random.default_rng(seed).exponential(size=1000)) for seed in range(20)
    ]
    assert sorted(lengths)[:18] == [1] * 18
    assert block_length([3.0] * 100) == block_length([1.0, 2.0]) == block_length([]) == 1


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_the_length_of_an_autoregressive_series_is_near_the_best(share: float) -> None:
    """For AR(1) the sums are known: G = 2 r / (1 - r)^2 / (1 - r^2), g = 1 / (1 - r)^2."""
    count = 4000
    slope, level = 2 * share / (1 - share) ** 2 / (1 - share**2), 1 / (1 - share) ** 2
    best = (1.5 * (slope / level) ** 2 * count) ** (1 / 3)
    lengths = [block_length(autoregressive(share, count, seed)) for seed in range(10)]
    assert np.median(lengths) == pytest.approx(best, rel=0.25)


def test_a_block_leaves_others_to_draw_from() -> None:
    assert block_length(np.arange(100.0)) <= 34
