"""Length laws: how many tokens a generator's prompts and outputs have."""

from dataclasses import dataclass
from math import isfinite, log, sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals import check_positive
from workloads.errors import TraceError
from workloads.trace import Trace

IntArray = NDArray[np.int64]


class TokenLaw(Protocol):
    """Draws token counts of one kind, prompts or outputs."""

    def sample(self, count: int, rng: np.random.Generator) -> IntArray:
        """``count`` token counts, each at least 1."""
        ...


class LengthLaw(Protocol):
    """Draws prompts and outputs together."""

    def sample(self, count: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """``count`` prompt and output token counts, each at least 1."""
        ...


@dataclass(frozen=True, slots=True)
class FixedTokens:
    """Always the same count."""

    tokens: int

    def __post_init__(self) -> None:
        check_positive("fixed length", self.tokens)

    def sample(self, count: int, rng: np.random.Generator) -> IntArray:
        """``count`` times the fixed length."""
        return np.full(count, self.tokens, np.int64)


@dataclass(frozen=True, slots=True)
class LognormalTokens:
    """exp(N(mu, sigma^2)) tokens, rounded, then brought within the caps (which move the mean)."""

    mu: float
    sigma: float
    min_tokens: int = 1
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if not (isfinite(self.mu) and isfinite(self.sigma) and self.sigma >= 0):
            raise TraceError(
                f"a lognormal wants finite mu and sigma >= 0, not {self.mu:g} and {self.sigma:g}"
            )
        largest = self.max_tokens
        if self.min_tokens < 1 or (largest is not None and largest < self.min_tokens):
            raise TraceError(f"lengths want 1 <= min <= max, not {self.min_tokens} and {largest}")

    @classmethod
    def from_mean(
        cls, mean: float, cv: float, min_tokens: int = 1, max_tokens: int | None = None
    ) -> "LognormalTokens":
        """By mean and coefficient of variation: sigma^2 = ln(1 + cv^2), mu = ln mean - sigma^2/2.

        cv 0 gives a fixed length.
        """
        check_positive("mean length", mean)
        if not (isfinite(cv) and cv >= 0):
            raise TraceError(f"the cv of the lengths must be 0 or positive, not {cv:g}")
        variance = log(1 + cv**2)
        return cls(log(mean) - variance / 2, sqrt(variance), min_tokens, max_tokens)

    def sample(self, count: int, rng: np.random.Generator) -> IntArray:
        """``count`` lognormal lengths."""
        tokens = np.rint(rng.lognormal(self.mu, self.sigma, count))
        return np.clip(tokens, self.min_tokens, self.max_tokens).astype(np.int64)


@dataclass(frozen=True, slots=True)
class IndependentLengths:
    """Prompts and outputs each by their own law, from their own random stream."""

    prompt: TokenLaw
    output: TokenLaw

    def sample(self, count: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """``count`` prompt and output lengths, independent of one another."""
        prompt_rng, output_rng = rng.spawn(2)
        return self.prompt.sample(count, prompt_rng), self.output.sample(count, output_rng)


@dataclass(frozen=True, slots=True)
class EmpiricalLengths:
    """Pairs (prompt, output) drawn with replacement: no parametric law fits public traces well."""

    source: str
    pairs: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not self.pairs:
            raise TraceError(f"{self.source}: no lengths to draw from")

    def __repr__(self) -> str:
        return f"EmpiricalLengths({len(self.pairs):,} pairs of {self.source})"

    @classmethod
    def of(cls, trace: Trace) -> "EmpiricalLengths":
        """The joint lengths of a trace."""
        return cls(trace.source, tuple((r.prompt_tokens, r.output_tokens) for r in trace))

    def sample(self, count: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """``count`` pairs of the trace."""
        pairs = np.array(self.pairs, np.int64)[rng.integers(len(self.pairs), size=count)]
        return pairs[:, 0], pairs[:, 1]
