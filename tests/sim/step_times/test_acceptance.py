"""How many tokens a pass yields: sampled laws against exact ones, means against printed tables."""

from collections.abc import Callable
from itertools import chain, pairwise
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq

from servetwin.policies.batch import Batch
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.policies.sequence import Sequence, Siblings
from servetwin.sim.step_times.acceptance import (
    Acceptance,
    Chain,
    Diffusion,
    Tree,
    Verifier,
)
from servetwin.workloads.errors import PolicyError
from tests.support.acceptance import distribution, mean_passes, mean_tokens_per_pass

SIGNIFICANCE = 1e-3
"""Of tests with a fixed seed: a wrong law fails, a right one failed (or not) when written."""
DRAFTS = (1, 2, 3, 4, 5, 8)
MEANS = {
    0.5: (1.5, 1.75, 1.875, 1.9375, 1.96875, 1.996094),
    0.6: (1.6, 1.96, 2.176, 2.3056, 2.38336, 2.474806),
    0.7: (1.7, 2.19, 2.533, 2.7731, 2.94117, 3.198821),
    0.8: (1.8, 2.44, 2.952, 3.3616, 3.68928, 4.328911),
    0.9: (1.9, 2.71, 3.439, 4.0951, 4.68559, 6.125795),
}
"""As printed, but for 3.198819 at (0.7, 8): (1 - 0.7^9) / 0.3 = 3.19882131."""


def drawn(law: Acceptance, count: int, seed: int = 0) -> list[int]:
    (emitted,) = law.emissions(np.random.default_rng(seed), 1, 0, count).tolist()
    return [int(tokens) for tokens in emitted]


def chain_law(alpha: float, drafts: int) -> list[float]:
    """P(A = j), as the papers print it."""
    return [*(alpha**j * (1 - alpha) for j in range(drafts)), alpha**drafts]


def tree_law(alpha: float, widths: tuple[int, ...]) -> list[float]:
    """A level fails when all its siblings are wrong; those before it were passed."""
    failed = [(1 - alpha) ** width for width in widths]
    passed = [prod(1 - f for f in failed[:level]) for level in range(len(widths) + 1)]
    return [p * f for p, f in zip(passed, [*failed, 1.0], strict=True)]


def absorption_passes(law: list[float], tokens: int) -> float:
    """Mean passes of an absorbing Markov chain over the tokens still to come: (I - Q) t = 1."""
    stays = np.zeros((tokens, tokens))
    for left in range(1, tokens + 1):
        for emitted, probability in enumerate(law, start=1):
            if emitted < left:
                stays[left - 1, left - emitted - 1] = probability
    return float(np.linalg.solve(np.eye(tokens) - stays, np.ones(tokens))[-1])


@pytest.mark.parametrize("alpha", MEANS)
def test_means_of_chains_are_those_of_the_table(alpha: float) -> None:
    means = tuple(round(mean_tokens_per_pass(Chain(alpha, drafts)), 6) for drafts in DRAFTS)
    assert means == MEANS[alpha]


def test_a_speed_up_of_two_needs_the_printed_acceptance() -> None:
    """Four drafts, each at a twentieth of the target's step: 2 (4 c + 1) tokens per pass."""
    alpha = brentq(lambda a: mean_tokens_per_pass(Chain(a, 4)) - 2 * (4 * 0.05 + 1), 0, 1)
    assert round(alpha, 4) == 0.6222


def test_the_tree_of_the_notes() -> None:
    tree = Tree(0.6, (3, 2, 1, 1))
    assert mean_tokens_per_pass(tree) == pytest.approx(3.4770304, abs=5e-8)
    assert (tree.nodes, tree.rows) == (3 + 6 + 6 + 6, 22)


@given(alpha=st.floats(0, 1), drafts=st.integers(1, 12))
def test_a_tree_of_single_children_is_a_chain(alpha: float, drafts: int) -> None:
    tree, chain = Tree(alpha, (1,) * drafts), Chain(alpha, drafts)
    assert tree.rows == chain.rows
    assert tree.reach == pytest.approx(chain.reach, abs=1e-12)


@pytest.mark.parametrize("drafts", [1, 2, 4, 8])
@pytest.mark.parametrize("alpha", [0.4, 0.6, 0.8, 0.95])
def test_sampled_acceptance_of_chains_follows_the_exact_law(alpha: float, drafts: int) -> None:
    assert p_value(Chain(alpha, drafts), chain_law(alpha, drafts)) > SIGNIFICANCE


@pytest.mark.parametrize("widths", [(1, 1, 1), (3, 2, 1, 1), (4,), (2, 2, 2)])
@pytest.mark.parametrize("alpha", [0.4, 0.6])
def test_sampled_acceptance_of_trees_follows_the_exact_law(
    alpha: float, widths: tuple[int, ...]
) -> None:
    assert p_value(Tree(alpha, widths), tree_law(alpha, widths)) > SIGNIFICANCE


def p_value(law: Acceptance, expected: list[float], count: int = 40_000) -> float:
    """Chi-square over 1, 2, ... tokens; every expected count is above five."""
    observed = np.bincount(drawn(law, count), minlength=len(expected) + 1)[1:]
    assert min(expected) * count > 5
    return float(stats.chisquare(observed, np.array(expected) * count).pvalue)


def test_the_chi_square_finds_a_law_that_is_slightly_off() -> None:
    assert p_value(Chain(0.6, 4), chain_law(0.62, 4)) < SIGNIFICANCE


@pytest.mark.parametrize("tokens", [1, 2, 7, 100])
@pytest.mark.parametrize(
    ("law", "emitted"),
    [
        (Chain(0.6, 4), chain_law(0.6, 4)),
        (Chain(0.9, 8), chain_law(0.9, 8)),
        (Tree(0.6, (3, 2, 1, 1)), tree_law(0.6, (3, 2, 1, 1))),
    ],
)
def test_mean_passes_are_those_of_an_absorbing_chain(
    law: Acceptance, emitted: list[float], tokens: int
) -> None:
    expected = absorption_passes(emitted, tokens)
    assert mean_passes(law, tokens) == pytest.approx(expected, rel=1e-12)
    assert expected > tokens / mean_tokens_per_pass(law)


@pytest.mark.parametrize("tokens", [1, 3, 17, 64])
def test_sampled_requests_take_the_mean_passes_truncation_included(tokens: int) -> None:
    law = Chain(0.7, 4)
    counts = np.array([passes_taken(law, tokens, seed) for seed in range(3000)])
    error = counts.std(ddof=1) / np.sqrt(len(counts))
    expected = absorption_passes(chain_law(0.7, 4), tokens)
    assert abs(counts.mean() - expected) <= 4 * error


def passes_taken(law: Acceptance, tokens: int, seed: int) -> int:
    """Of an answer that takes at most a pass a token."""
    ends = np.cumsum(drawn(law, tokens, seed))
    return int(ends.searchsorted(tokens)) + 1


@given(
    alphas=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
    shape=st.one_of(st.integers(1, 8), st.lists(st.integers(1, 4), min_size=1, max_size=5)),
    seed=st.integers(0, 1000),
)
def test_with_equal_draws_a_likelier_acceptance_never_yields_less(
    alphas: list[float], shape: int | list[int], seed: int
) -> None:
    make: Callable[[float], Acceptance] = lambda alpha: (  # noqa: E731
        Chain(alpha, shape) if isinstance(shape, int) else Tree(alpha, tuple(shape))
    )
    less, more = (drawn(make(alpha), 50, seed) for alpha in alphas)
    assert all(a <= b for a, b in zip(less, more, strict=True))


def stopped_passes(law: Chain, count: int) -> tuple[list[float], list[float]]:
    """Tokens and drafts of passes, drafted one by one: how often 1, 2, ... of each."""
    rng = np.random.default_rng(9)
    exponent = law.alpha / (1 - law.alpha)
    tokens, drafts = np.zeros(law.drafts + 1), np.zeros(law.drafts)
    for _ in range(count):
        confidences = rng.random(law.drafts) ** (1 / exponent)
        below = np.flatnonzero(confidences < law.least_confidence)
        made = int(below[0]) + 1 if len(below) else law.drafts
        wrong = np.flatnonzero(rng.random(made) >= confidences[:made])
        tokens[int(wrong[0]) if len(wrong) else made] += 1
        drafts[made - 1] += 1
    return tokens.tolist(), drafts.tolist()


@pytest.mark.parametrize(
    ("alpha", "least"), [(0.7, 0.4), (0.7, 0.9), (0.3, 0.2), (0.9, 0.5), (0.5, 0.01)]
)
def test_a_chain_that_ends_where_the_drafter_is_unsure_follows_the_exact_law(
    alpha: float, least: float
) -> None:
    """Against drafting token by token, each with a confidence of its own."""
    law, count = Chain(alpha, 4, least), 20_000
    tokens, drafts = stopped_passes(law, count)
    expected = distribution(law) * count
    assert min(expected) > 5
    assert stats.chisquare(tokens, expected).pvalue > SIGNIFICANCE
    made = np.cumsum(drafts[::-1])[::-1] / count
    assert made == pytest.approx(np.array(law.step_shares), abs=0.015)
    drawn_mean = np.mean(drawn(law, 20_000))
    assert drawn_mean == pytest.approx(mean_tokens_per_pass(law), abs=0.05)


@pytest.mark.parametrize(
    ("least", "tokens", "drafts"),
    [
        (0.2, 2.7643, 3.8618),
        (0.4, 2.686, 3.3466),
        (0.6, 2.4615, 2.519),
        (0.8, 2.0862, 1.6375),
        (1.0, 1.7, 1.0),
    ],
)
def test_means_of_stopped_chains(least: float, tokens: float, drafts: float) -> None:
    """1 + a (1 - s^g) / (1 - s) tokens of (1 - q^g) / (1 - q) drafts, at a = 0.7 and g = 4."""
    law, exponent = Chain(0.7, 4, least), 0.7 / 0.3
    q, s = 1 - least**exponent, 0.7 * (1 - least ** (exponent + 1))
    assert mean_tokens_per_pass(law) == pytest.approx(1 + 0.7 * (1 - s**4) / (1 - s))
    assert sum(law.step_shares) == pytest.approx((1 - q**4) / (1 - q))
    assert (round(mean_tokens_per_pass(law), 4), round(sum(law.step_shares), 4)) == (
        tokens, drafts,
    )  # fmt: skip


@given(alpha=st.floats(0.01, 1), drafts=st.integers(1, 8), least=st.floats(1e-3, 1))
def test_stopping_lies_between_one_draft_and_all_of_them(
    alpha: float, drafts: int, least: float
) -> None:
    stopped, one, whole = Chain(alpha, drafts, least), Chain(alpha, 1), Chain(alpha, drafts)
    assert 1 <= sum(stopped.step_shares) <= drafts
    mean = mean_tokens_per_pass(stopped)
    assert mean_tokens_per_pass(one) <= mean * (1 + 1e-12)
    assert mean <= mean_tokens_per_pass(whole) * (1 + 1e-12)
    never = Chain(alpha, drafts, 1e-300)
    assert never.reach == pytest.approx(whole.reach, abs=0.01 if alpha < 0.1 else 1e-9)


def test_blocks_of_four_take_25_passes_for_100_tokens() -> None:
    """Stern et al., section 4: m / k passes beside the one that predicts the first block."""
    whole = Chain(1.0, 3)
    assert mean_passes(whole, 100) == 25.0
    assert drawn(whole, 25) == [4] * 25
    partly = Chain(0.8, 3)
    assert mean_tokens_per_pass(partly) == pytest.approx(sum(0.8**j for j in range(4)))
    assert partly.rows == 4


def test_a_diffusion_block_comes_out_at_once() -> None:
    law = Diffusion(block_tokens=8, refinements=3)
    assert drawn(law, 6) == [0, 0, 8, 0, 0, 8]
    assert (law.rows, mean_tokens_per_pass(law)) == (8, 8 / 3)
    assert [mean_passes(law, tokens) for tokens in (1, 8, 9, 256)] == [3, 3, 6, 96]


def judged(verifier: Verifier, *seqs: Sequence, passes: int = 40) -> list[list[int]]:
    """What comes out of the first passes of sequences that decode together."""
    group = DraftedDecodes(5)
    for seq in seqs:
        group.join(seq)
    batch = Batch((), group)
    verifier.verify(batch)
    ways = [[group.coming(seq, steps) for steps in range(passes + 1)] for seq in seqs]
    return [[after - before for before, after in pairwise(way)] for way in ways]


def sequences(*numbers: int) -> list[Sequence]:
    seqs = [Sequence(str(n), 0.0, 9, 10_000, number=n) for n in numbers]
    for seq in seqs:
        seq.base_generated_tokens = 1
    return seqs


def test_what_a_request_draws_does_not_depend_on_its_company() -> None:
    verifier = Verifier(Chain(0.7, 4), 5)
    (_, third) = judged(verifier, *sequences(0, 2))
    assert judged(verifier, *sequences(2, 1))[0] == third
    assert judged(Verifier(Chain(0.7, 4), 5), *sequences(2)) == [third]


def test_a_request_draws_the_same_after_thousands_of_others() -> None:
    """More than a verifier keeps; and an answer longer than what is drawn together."""
    verifier, passes = Verifier(Chain(0.7, 4), 5), 600
    before = judged(verifier, *sequences(63, 64), passes=passes)
    judged(verifier, *sequences(*range(0, 20_000, 64)), passes=1)
    assert judged(verifier, *sequences(63, 64), passes=passes) == before
    assert all(1 <= tokens <= 5 for tokens in chain(*before))
    first, second, third = before[0][:200], before[0][200:400], before[0][400:]
    assert first != second != third


def test_streams_follow_the_seed_and_differ_between_requests_and_answers() -> None:
    def draws(seed: np.random.SeedSequence | int, number: int) -> list[list[int]]:
        return judged(Verifier(Chain(0.7, 4), seed), *sequences(number))

    assert draws(5, 0) == draws(np.random.SeedSequence(5), 0)
    assert draws(5, 0) != draws(6, 0)
    assert draws(5, 0) != draws(5, 1)
    assert draws(5, 0) != draws(5, 1000)
    first_child, second_child = np.random.SeedSequence(5).spawn(2)
    assert draws(first_child, 0) != draws(second_child, 0)

    prompt = Sequence("several", 0.0, 9, 10_000, samples=2)
    prompt.siblings = Siblings(prompt)
    one, other = judged(Verifier(Chain(0.7, 4), 5), prompt, prompt.fork())
    assert one != other


def test_a_law_of_other_rows_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"draft_rows: 4 does not fit Chain\(.*must be 7"):
        judged(Verifier(Chain(0.7, 7)), *sequences(0))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Chain(1.2, 4), "alpha: 1.2 is not possible; it must be from 0 to 1"),
        (lambda: Tree(-0.1, (2,)), "alpha: -0.1"),
        (lambda: Chain(0.5, 4, 1.5), "least_confidence: 1.5 is not possible; it must be from"),
        (lambda: Chain(0.5, 0), "drafts: 0 is not possible; it must be at least 1"),
        (lambda: Tree(0.5, (2, 0)), "widths: 0"),
        (lambda: Tree(0.5, ()), "widths: 0"),
        (lambda: Diffusion(0, 1), "block_tokens: 0"),
        (lambda: Diffusion(8, 0), "refinements: 0"),
    ],
)
def test_impossible_laws_are_refused(make: Callable[[], Any], reason: str) -> None:
    with pytest.raises(PolicyError, match=f"^{reason}"):
        make()


def test_mean_passes_grow_with_the_tokens() -> None:
    passes = [mean_passes(Chain(0.6, 4), tokens) for tokens in range(1, 200)]
    assert passes[0] == 1.0
    assert all(a < b for a, b in pairwise(passes))
