"""Laws of lengths and pauses, and the prompts that are made of them."""

from collections.abc import Callable
from itertools import combinations
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, lognorm

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators import prompts
from servetwin.workloads.generators.chaining import Chaining
from servetwin.workloads.generators.lengths import (
    EmpiricalLengths,
    ExponentialTokens,
    LognormalTokens,
    ParetoTailTokens,
    TokenLaw,
    UniformTokens,
)
from servetwin.workloads.generators.pauses import ExponentialPause, LognormalPause, MixedPause
from servetwin.workloads.generators.prompts import WORDS, prompt_text
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.prefix_chains import chained_traces, leading, shared_tokens
from tests.support.prompt_ids import prompt_token_ids

DRAWS = 50_000
MOONCAKE = ParetoTailTokens(LognormalTokens(8.737, 1.199), 39_550, 2.2)


def drawn(law: TokenLaw, seed: int = 0, count: int = DRAWS) -> np.ndarray:
    return law.sample(count, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("law", "mean", "deviation"),
    [
        (UniformTokens(3, 12), 7.5, sqrt((10**2 - 1) / 12)),
        (ExponentialTokens(2.5), 2.5, sqrt(2.5 * 1.5)),
        (ExponentialTokens(300), 300, sqrt(300 * 299)),
    ],
)
def test_means_are_exact(law: TokenLaw, mean: float, deviation: float) -> None:
    tokens = drawn(law)
    assert tokens.mean() == pytest.approx(mean, abs=4 * deviation / sqrt(DRAWS))
    assert tokens.min() >= 1


@pytest.mark.parametrize(
    ("law", "least", "most"),
    [
        (UniformTokens(3, 5), 3, 5),
        (ExponentialTokens(100, 50), 1, 50),
        (ParetoTailTokens(LognormalTokens(3, 2, 4, 60), 20.0), 4, 60),
    ],
)
def test_caps_hold_and_are_met(law: TokenLaw, least: int, most: int) -> None:
    tokens = drawn(law)
    assert (tokens.min(), tokens.max()) == (least, most)


def test_the_tail_is_pareto_and_keeps_its_share() -> None:
    tokens = drawn(MOONCAKE)
    tail = tokens[tokens > 39_550]
    share = lognorm(1.199, scale=np.exp(8.737)).sf(39_550)
    assert len(tail) == pytest.approx(DRAWS * share, abs=4 * sqrt(DRAWS * share))
    hill = 1 / np.log(tail / 39_550).mean()
    assert hill == pytest.approx(2.2, abs=4 * 2.2 / sqrt(len(tail)))


def test_the_body_is_lognormal() -> None:
    body = np.sort(drawn(MOONCAKE))
    body = body[body < 39_550]
    law = lognorm(1.199, scale=np.exp(8.737))
    assert kstest(body, lambda x: law.cdf(x) / law.cdf(39_550)).pvalue > 0.001


def test_the_tail_index_leaves_the_body_as_it_was() -> None:
    lighter = drawn(ParetoTailTokens(MOONCAKE.body, 39_550, 5.0))
    heavier = drawn(MOONCAKE)
    body = heavier < 39_550
    assert np.array_equal(lighter[body], heavier[body])
    assert lighter.max() < heavier.max()


def test_jitter_moves_lengths_but_not_their_mean() -> None:
    law = EmpiricalLengths("short", ((100, 10), (3000, 7)), jitter=0.2)
    prompts, outputs = law.sample(DRAWS, np.random.default_rng(0))
    assert len(set(prompts.tolist())) > 1000
    deviation = sqrt(np.var(prompts) / DRAWS)
    assert prompts.mean() == pytest.approx(1550, abs=4 * deviation)
    assert outputs.min() >= 1
    plain = EmpiricalLengths("short", law.pairs).sample(DRAWS, np.random.default_rng(0))[0]
    ratios = np.log(prompts / plain)
    assert np.array_equal(prompts > 800, plain > 800)  # the same pairs, moved
    assert ratios.std() == pytest.approx(0.2, rel=0.02)
    assert law.describe().startswith("lengths drawn from the 2 pairs of short, each times")
    assert repr(law) == "EmpiricalLengths(source='short', jitter=0.2)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UniformTokens(0, 5), "1 <= min <= max, not 0 and 5"),
        (lambda: UniformTokens(6, 5), "1 <= min <= max, not 6 and 5"),
        (lambda: ExponentialTokens(0.5), "a mean length must be at least 1 token, not 0.5"),
        (lambda: ExponentialTokens(5, 0), "1 <= min <= max, not 1 and 0"),
        (lambda: ParetoTailTokens(LognormalTokens(log(9), 1), 0), "the start of the tail must be"),
        (lambda: ParetoTailTokens(LognormalTokens(1, 1), 5, 0), "the tail index alpha must be"),
        (lambda: EmpiricalLengths("x", ((1, 1),), -1), "jitter of lengths must be 0 or positive"),
    ],
)
def test_impossible_laws(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TraceError) as raised:
        make()
    assert message in str(raised.value)


def test_pauses_have_their_moments_and_streams() -> None:
    rng = np.random.default_rng
    exponential = ExponentialPause(30.0).sample(20_000, rng(0))
    assert exponential.mean() == pytest.approx(30, abs=4 * 30 / sqrt(20_000))
    logs = np.log(LognormalPause().sample(20_000, rng(0)))
    assert logs.mean() == pytest.approx(np.log(120), abs=4 * 1.5 / sqrt(20_000))
    assert np.percentile(np.exp(logs), 90) == pytest.approx(820, rel=0.06)
    mixed = MixedPause(ExponentialPause(1e-9), ExponentialPause(50.0), 0.15).sample(20_000, rng(0))
    assert (mixed > 1e-6).mean() == pytest.approx(0.15, abs=4 * sqrt(0.15 * 0.85 / 20_000))
    other = MixedPause(ExponentialPause(2e-9), ExponentialPause(50.0), 0.15).sample(20_000, rng(0))
    assert np.array_equal(mixed[mixed > 1e-6], other[mixed > 1e-6])


HUGE_VOCABULARY = 2**40


@given(chained_traces())
def test_prompts_begin_alike_exactly_as_far_as_their_ids_say(trace: Trace) -> None:
    for left, right in combinations(trace, 2):
        left_ids = prompt_token_ids(left, HUGE_VOCABULARY)
        right_ids = prompt_token_ids(right, HUGE_VOCABULARY)
        assert leading(left_ids, right_ids) == shared_tokens(left, right)


@given(chained_traces(), st.integers(260, 600))
def test_prompts_keep_their_length_and_vocabulary(trace: Trace, vocab_size: int) -> None:
    for request in trace:
        ids = prompt_token_ids(request, vocab_size)
        assert len(ids) == request.prompt_tokens
        assert min(ids) >= 259
        assert max(ids) < vocab_size
        words = prompt_text(request).split(" ")
        assert len(words) == request.prompt_tokens
        assert set(words) <= set(WORDS)


@given(chained_traces())
def test_texts_share_their_words(trace: Trace) -> None:
    for left, right in combinations(trace, 2):
        common = leading(prompt_text(left).split(), prompt_text(right).split())
        assert common >= shared_tokens(left, right)


@given(chained_traces(), st.sampled_from(["", "salt"]), st.sampled_from([None, 1000, 2**40]))
def test_kept_texts_change_no_prompt(trace: Trace, salt: str, vocab_size: int | None) -> None:
    """Prompts of a trace that was seen before, of one that was not, and beyond the bound."""
    form = salt, vocab_size
    first = [prompt_text(request, *form) for request in trace]
    prompts._kept_texts.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompts, "_MOST_BLOCKS", 2)
        assert [prompt_text(request, *form) for request in trace] == first
        assert [prompt_text(request, *form) for request in reversed(trace.requests)] == first[::-1]


@pytest.mark.parametrize("largest_table", [10_000, 2**20])
def test_prompts_are_the_same_in_every_version(
    largest_table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "_LARGEST_TABLE", largest_table)
    prompts._kept_texts.cache_clear()
    request = Request("a", 0.0, 6, 1, (3, 7), 2)
    assert prompt_token_ids(request, 32_000) == [652, 4381, 22994, 13222, 13938, 4959]
    assert prompt_text(request) == "gate climb circle floor color edge"


@given(chained_traces())
def test_a_salt_changes_every_prompt_and_keeps_what_they_share(trace: Trace) -> None:
    """Prefixes of small ids under one salt must not be those of other ids under another."""
    salted = {
        salt: [prompt_token_ids(request, HUGE_VOCABULARY, salt=salt) for request in trace]
        for salt in ("", "1", "2")
    }
    first = [{ids[0] for ids in prompts} for prompts in salted.values()]
    assert not any(one & other for one, other in combinations(first, 2))
    for (left, one), (right, other) in combinations(enumerate(trace), 2):
        shared = {leading(prompts[left], prompts[right]) for prompts in salted.values()}
        assert shared == {shared_tokens(one, other)}


def test_words_are_ascii_and_distinct() -> None:
    assert len(set(WORDS)) == len(WORDS) > 200
    assert all(word.isascii() and word.isalpha() for word in WORDS)


def test_odd_request_ids_have_prompts() -> None:
    assert len(prompt_token_ids(Request("\ud800 é", 0.0, 3, 1), 300)) == 3


def test_a_vocabulary_without_room_is_refused() -> None:
    with pytest.raises(TraceError, match="a vocabulary of 259 has no ids from 259 on"):
        prompt_token_ids(Request("a", 0.0, 3, 1), 259)


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=12))
def test_chained_ids_are_equal_where_the_whole_prefix_is(prompts: list[list[int]]) -> None:
    chaining = Chaining()
    prefixes: dict[int, tuple[int, ...]] = {}
    for prompt in prompts:
        ids = chaining.chained(prompt)
        assert len(ids) == len(prompt)
        for end, block_id in enumerate(ids, 1):
            assert prefixes.setdefault(block_id, tuple(prompt[:end])) == tuple(prompt[:end])
    assert len(set(prefixes.values())) == len(prefixes)


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=12))
def test_chaining_chained_ids_changes_names_only(prompts: list[list[int]]) -> None:
    once, twice = Chaining(), Chaining()
    names: dict[int, int] = {}
    for prompt in prompts:
        ids = once.chained(prompt)
        for before, after in zip(ids, twice.chained(ids), strict=True):
            assert names.setdefault(before, after) == after
    assert len(set(names.values())) == len(names)
