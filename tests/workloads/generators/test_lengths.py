"""Length laws: their probabilities and means, their caps, and what they refuse."""

from collections.abc import Callable
from math import log, sqrt

import numpy as np
import pytest
from scipy.stats import kstest, lognorm

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.lengths import (
    EmpiricalLengths,
    ExponentialTokens,
    LognormalTokens,
    ParetoTailTokens,
    TokenLaw,
    UniformTokens,
    ZipfTokens,
)

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
        (ZipfTokens(0, 9), 5, sqrt((9**2 - 1) / 12)),
        (ZipfTokens(1, 3), 18 / 11, sqrt(36 / 11 - (18 / 11) ** 2)),
        (ZipfTokens(2, 11, 10), (10 * 121 + 11 * 100) / 221, 0.5),
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
        (ZipfTokens(0.5, 7, 2), 2, 7),
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
        (lambda: ZipfTokens(-1, 5), "the Zipf exponent must be 0 or positive, not -1"),
        (lambda: ZipfTokens(1, 0), "1 <= min <= max, not 1 and 0"),
        (lambda: ParetoTailTokens(LognormalTokens(log(9), 1), 0), "the start of the tail must be"),
        (lambda: ParetoTailTokens(LognormalTokens(1, 1), 5, 0), "the tail index alpha must be"),
        (lambda: EmpiricalLengths("x", ((1, 1),), -1), "jitter of lengths must be 0 or positive"),
    ],
)
def test_impossible_laws(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TraceError) as raised:
        make()
    assert message in str(raised.value)
