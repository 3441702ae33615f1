"""Length distributions: how many tokens a generator's prompts and outputs have."""

from dataclasses import dataclass, field
from math import exp, expm1, isfinite, log, sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.arrivals import capped, check_not_negative, check_positive
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace

IntArray = NDArray[np.int64]

# The largest count a trace file may hold.
_MAX = 2**31 - 1
# The variance of the logarithm beyond which mean and CV say nothing.
_WIDEST = 100.0
# The largest power of e that is a float.
_LARGEST_POWER = 700.0


class TokenLaw(Protocol):
    """Draws token counts of one kind, prompts or outputs."""

    def sample(self, count: int, rng: np.random.Generator) -> IntArray:
        """Return ``count`` token counts, each at least 1."""

    def describe(self, noun: str = "token") -> str:
        """Return what it draws, in plain English; ``noun`` is the thing that is counted."""


class LengthDistribution(Protocol):
    """Draws prompts and outputs together."""

    def sample(self, count: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Return ``count`` prompt and output token counts, each at least 1."""


@dataclass(frozen=True, slots=True)
class FixedTokens:
    """Always the same count."""

    tokens: int

    def __post_init__(self) -> None:
        check_positive("fixed length", self.tokens)

    def sample(self, count: int, rng: np.random.Generator) -> IntArray:
        """Return ``count`` times the fixed length."""
        return np.full(count, self.tokens, np.int64)

    def describe(self, noun: str = "token") -> str:
        """Return ``always 512 tokens``."""
        return f"always {counted(self.tokens, noun)}"


@dataclass(frozen=True, slots=True)
class LognormalTokens:
    """exp(N(mu, sigma^2)) tokens, rounded, then brought within the caps (which move the mean)."""

    mu: float
    sigma: float
    min_tokens: int = 1
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if not (isfinite(self.mu) and isfinite(self.sigma) and self.sigma >= 0):
            given = f"{self.mu:g} and {self.sigma:g}"
            raise TraceError(f"a lognormal wants finite mu and sigma >= 0, not {given}")
        _check_range(self.min_tokens, self.max_tokens)

    @classmethod
    def from_mean(
        cls, mean: float, cv: float, min_tokens: int = 1, max_tokens: int | None = None
    ) -> "LognormalTokens":
        """Build it from mean and coefficient of variation: sigma^2 = ln(1 + cv^2), mu = ln mean -
        sigma^2/2.

        cv 0 gives a fixed length.
        """
        check_positive("mean length", mean)
        check_not_negative("cv of the lengths", cv)
        variance = log(1 + cv**2)
        return cls(log(mean) - variance / 2, sqrt(variance), min_tokens, max_tokens)

    def sample(self, count: int, rng: np.random.Generator) -> IntArray:
        """Return ``count`` lognormal lengths."""
        lengths = np.rint(rng.lognormal(self.mu, self.sigma, count))
        return np.clip(lengths, self.min_tokens, self.max_tokens or _MAX).astype(np.int64)

    def describe(self, noun: str = "token") -> str:
        """Return the mean and the CV, both before the caps."""
        caps, variance = capped(self.min_tokens, self.max_tokens), self.sigma**2
        if not variance:
            return f"always {counted(round(_exp(self.mu)), noun)}{caps}"
        if variance > _WIDEST:
            return (
                f"log-normal, median {counted(_exp(self.mu), noun)}, sigma {self.sigma:.3g}{caps}"
            )
        mean, cv = _exp(self.mu + variance / 2), sqrt(expm1(variance))
        return f"log-normal, mean {counted(mean, noun)}, CV {cv:.3g}{caps}"


@dataclass(frozen=True, slots=True)
class UniformTokens:
    """Every count from min to max alike."""

    min_tokens: int
    max_tokens: int

    def __post_init__(self) -> None:
        _check_range(self.min_tokens, self.max_tokens)

    def sample(self, count: int, rng: np.random.Generator) -> IntArray:
        """Return ``count`` uniform lengths."""
        return rng.integers(self.min_tokens, self.max_tokens, count, endpoint=True)

    def describe(self, noun: str = "token") -> str:
        """Return ``1 to 100 tokens, all alike``."""
        return f"{self.min_tokens:,} to {counted(self.max_tokens, noun)}, all alike"


@dataclass(frozen=True, slots=True)
class ExponentialTokens:
    """Memoryless whole numbers from 1 on (geometric): the mean is exact but for the cap."""

    mean_tokens: float
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if not (isfinite(self.mean_tokens) and self.mean_tokens >= 1):
            raise TraceError(f"a mean length must be at least 1 token, not {self.mean_tokens:g}")
        _check_range(1, self.max_tokens)

    def sample(self, count: int, rng: np.random.Generator) -> IntArray:
        """Return ``count`` geometric lengths."""
        return np.minimum(rng.geometric(1 / self.mean_tokens, count), self.max_tokens or _MAX)

    def describe(self, noun: str = "token") -> str:
        """Return the mean before the cap."""
        return f"exponential, mean {counted(self.mean_tokens, noun)}{capped(1, self.max_tokens)}"


@dataclass(frozen=True, slots=True)
class ParetoTailTokens:
    """A lognormal body; what it draws above ``tail_from_tokens`` is Pareto(alpha) instead.

    So the tail keeps the share that the lognormal gives it, P(n > x) falls as x^-alpha there, and
    the caps are the body's. Inputs of public traces are of this kind: alpha 2.2 for Mooncake.
    """

    body: LognormalTokens
    tail_from_tokens: float
    alpha: float = 2.2

    def __post_init__(self) -> None:
        check_positive("start of the tail", self.tail_from_tokens)
        check_positive("tail index alpha", self.alpha)

    def sample(self, count: int, rng: np.random.Generator) -> IntArray:
        """Return ``count`` lengths, the tail from its own random stream."""
        body_rng, tail_rng = rng.spawn(2)
        body = body_rng.lognormal(self.body.mu, self.body.sigma, count)
        tail = self.tail_from_tokens * (1 + tail_rng.pareto(self.alpha, count))
        lengths = np.rint(np.where(body > self.tail_from_tokens, tail, body))
        return np.clip(lengths, self.body.min_tokens, self.body.max_tokens or _MAX).astype(np.int64)

    def describe(self, noun: str = "token") -> str:
        """Return the body, and where its tail begins."""
        tail = f"a Pareto tail of index {self.alpha:.3g}"
        return f"{self.body.describe(noun)}, above {counted(self.tail_from_tokens, noun)} {tail}"


@dataclass(frozen=True, slots=True)
class IndependentLengths:
    """Prompts and outputs each by their own distribution, from their own random stream."""

    prompt: TokenLaw
    output: TokenLaw

    def sample(self, count: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Return ``count`` prompt and output lengths, independent of one another."""
        prompt_rng, output_rng = rng.spawn(2)
        return self.prompt.sample(count, prompt_rng), self.output.sample(count, output_rng)

    def describe(self) -> str:
        """Return both."""
        return f"prompts {self.prompt.describe()}; outputs {self.output.describe()}"


@dataclass(frozen=True, slots=True)
class EmpiricalLengths:
    """Pairs (prompt, output) drawn with replacement: no parametric one fits public traces well.

    With a ``jitter``, each length is multiplied by its own lognormal factor of mean 1 and this
    sigma, so that lengths which the source lacks occur too.
    """

    source: str
    pairs: tuple[tuple[int, int], ...] = field(repr=False)
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if not self.pairs:
            raise TraceError(f"{self.source}: no lengths to draw from")
        check_not_negative("jitter of lengths", self.jitter)

    def describe(self) -> str:
        """Return how many pairs it draws from, and whose they are."""
        jitter = f", each times a log-normal factor of sigma {self.jitter:g}" if self.jitter else ""
        return f"lengths drawn from the {len(self.pairs):,} pairs of {self.source}{jitter}"

    @classmethod
    def of(cls, trace: Trace, jitter: float = 0.0) -> "EmpiricalLengths":
        """Build it from the joint lengths of a trace."""
        lengths = (trace.column(name).tolist() for name in ("prompt_tokens", "output_tokens"))
        return cls(trace.source, tuple(zip(*lengths, strict=True)), jitter)

    def sample(self, count: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Return ``count`` pairs of the trace."""
        pairs = np.array(self.pairs, np.int64)[rng.integers(len(self.pairs), size=count)]
        if self.jitter:
            factors = rng.lognormal(-(self.jitter**2) / 2, self.jitter, pairs.shape)
            pairs = np.clip(np.rint(pairs * factors), 1, _MAX).astype(np.int64)
        return pairs[:, 0], pairs[:, 1]


def _exp(power: float) -> float:
    return exp(min(power, _LARGEST_POWER))


def _check_range(min_tokens: int, max_tokens: int | None) -> None:
    if min_tokens < 1 or (max_tokens is not None and max_tokens < min_tokens):
        raise TraceError(f"lengths want 1 <= min <= max, not {min_tokens} and {max_tokens}")
