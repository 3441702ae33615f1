"""The number of tokens that come out of a pass that verifies drafts: distributions, and draws.

A pass computes ``rows`` rows of a sequence: that of its last token, and those of the drafted
tokens. The prefill yields the first token of an answer; for diffusion, the first block has it.

========== ======================================================================================
Chain      a draft model proposes a row of tokens: Leviathan et al. (ICML 2023), Chen et al. (2023);
           it may end where the draft model is unsure: Zhang et al. (2023)
Tree       several proposals at each position, verified at once: SpecInfer (ASPLOS 2024)
Diffusion  a block is refined as a whole: block diffusion, Arriola et al. (ICLR 2025)
========== ======================================================================================
"""

from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import inf
from operator import mul
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig, require
from servetwin.policies.drafted_decodes import DraftedDecodes, IntArray
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import PolicyError

Counts = npt.NDArray[np.integer[Any]]
# Answers that are drawn together: of requests whose numbers follow each other.
_ANSWERS = 64
# Passes of an answer that are drawn together.
_PASSES = 256
# Draws that are kept at a time.
_PAGES = 128


class Acceptance(Protocol):
    """The distribution of the tokens that come out of a pass."""

    @property
    def rows(self) -> int:
        """Rows of a sequence in a pass: 1 + ``draft_rows`` of the policies."""

    @property
    def prompt_token(self) -> bool:
        """Return whether the pass of a prompt yields a token, as ``prompt_token`` of policies."""

    def emissions(self, rng: np.random.Generator, answers: int, first: int, passes: int) -> Counts:
        """Return the tokens of ``passes`` passes from pass ``first`` on, a row for each answer."""


class OrderedAcceptance(Acceptance):
    """Drafts are verified in order; the accepted ones come out, and one token of the target model.

    A pass draws one uniform number, so with equal draws a higher acceptance never yields fewer
    tokens.
    """

    prompt_token: ClassVar[bool] = True
    """The target computes it."""

    @property
    def rows(self) -> int:
        """One more than the most drafts that can be accepted."""
        return 1 + len(self.reach)

    @property
    @abstractmethod
    def reach(self) -> tuple[float, ...]:
        """Probabilities that at least 1, 2, ... drafted tokens are accepted."""

    def emissions(self, rng: np.random.Generator, answers: int, first: int, passes: int) -> Counts:
        """Return independent draws of ``distribution``."""
        draws = rng.random((answers, passes), np.float32)
        emitted = np.ones((answers, passes), np.int16)
        for probability in self.reach:
            emitted += draws < probability
        return emitted


@dataclass(frozen=True, slots=True)
class Chain(OrderedAcceptance):
    """``drafts`` tokens in a row, each accepted with probability ``alpha`` after accepted ones.

    P(A = j) = alpha^j (1 - alpha) for j < drafts, P(A = drafts) = alpha^drafts; the mean of 1 + A
    is (1 - alpha^(drafts + 1)) / (1 - alpha) (Leviathan et al., equation 1).

    With a ``least_confidence`` c, drafting ends behind a token of which the drafter is less sure.
    The confidence x in a token is the probability that it is accepted, a draw from a x^(a - 1) with
    a = ``alpha`` / (1 - ``alpha``), whose mean is ``alpha``. Drafting goes on with probability
    q = 1 - c^a, and goes on behind an accepted token with s = alpha (1 - c^(a + 1)). The mean of
    1 + A is 1 + alpha (1 - s^drafts) / (1 - s), that of the drafts (1 - q^drafts) / (1 - q).
    """

    alpha: float
    drafts: int
    least_confidence: float = 0.0

    def __post_init__(self) -> None:
        _require(alpha=self.alpha, drafts=self.drafts)
        least = self.least_confidence
        require(0 <= least <= 1, "least_confidence", least, "from 0 to 1")

    @property
    def reach(self) -> tuple[float, ...]:
        """alpha^j, or alpha s^(j - 1) where drafting ends early."""
        if not self.least_confidence:
            return tuple(self.alpha**accepted for accepted in range(1, self.drafts + 1))
        on = self.alpha * (1 - self.least_confidence ** (self._exponent + 1))
        return tuple(self.alpha * on**accepted for accepted in range(self.drafts))

    @property
    def step_shares(self) -> tuple[float, ...]:
        """Return the probabilities q^(j - 1) that draft j is made; none where every draft is."""
        if not self.least_confidence:
            return ()
        on = 1 - self.least_confidence**self._exponent
        return tuple(on**drafted for drafted in range(self.drafts))

    @property
    def _exponent(self) -> float:
        return self.alpha / (1 - self.alpha) if self.alpha < 1 else inf


@dataclass(frozen=True, slots=True)
class Measured(OrderedAcceptance):
    """Draft j is accepted in a share ``shares[j - 1]`` of the passes, as a server has counted."""

    shares: tuple[float, ...]
    step_shares: ClassVar[tuple[float, ...]] = ()

    @classmethod
    def of(cls, shares: tuple[float, ...], drafts: int) -> "Measured":
        """Return the acceptance of ``drafts`` drafts; further ones fall as the last two did."""
        before = shares[-2] if len(shares) > 1 else 1.0
        falls = shares[-1] / before if before else 0.0
        further = tuple(shares[-1] * falls**place for place in range(1, drafts))
        return cls((shares + further)[:drafts])

    @property
    def reach(self) -> tuple[float, ...]:
        """``shares``."""
        return self.shares


@dataclass(frozen=True, slots=True)
class Tree(OrderedAcceptance):
    """``widths[i]`` proposals below each token of level i, all of them verified in one pass.

    A level is passed with probability 1 - (1 - alpha)^width: siblings are taken to be independent,
    which is optimistic. Widths of 1 make a chain (SpecInfer, ASPLOS 2024).
    """

    alpha: float
    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        _require(alpha=self.alpha, widths=min(self.widths, default=0))

    @property
    def nodes(self) -> int:
        """Drafted tokens: the sum over the levels of the product of the widths down to there."""
        return sum(accumulate(self.widths, mul))

    @property
    def rows(self) -> int:
        """1 + ``nodes``."""
        return 1 + self.nodes

    @property
    def reach(self) -> tuple[float, ...]:
        """Products of the levels' probabilities."""
        return tuple(accumulate((1 - (1 - self.alpha) ** width for width in self.widths), mul))


@dataclass(frozen=True, slots=True)
class Diffusion:
    """A block of ``block_tokens`` is refined ``refinements`` times; then all its tokens come out.

    Deterministic. Each pass writes the keys and values of the block again, those of earlier blocks
    are kept (block diffusion, Arriola et al., ICLR 2025).
    """

    block_tokens: int
    refinements: int
    prompt_token: ClassVar[bool] = False
    """All tokens come out of blocks."""

    def __post_init__(self) -> None:
        _require(block_tokens=self.block_tokens, refinements=self.refinements)

    @property
    def rows(self) -> int:
        """``block_tokens``."""
        return self.block_tokens

    def emissions(self, rng: np.random.Generator, answers: int, first: int, passes: int) -> Counts:
        """0, ..., 0, ``block_tokens``, over and over."""
        done = np.arange(first + 1, first + passes + 1) % self.refinements == 0
        return np.tile(self.block_tokens * done, (answers, 1))


class DraftVerifier(Protocol):
    """Decides how many tokens come out of the passes of a sequence."""

    def verify(self, batch: Batch) -> None:
        """Set the tokens of the passes of new sequences in ``batch``."""


class Verifier:
    """Draws how many tokens come out of the passes of a sequence, once it decodes.

    What an answer draws depends on the seed and the number of its request alone, whatever else is
    in the batch. Answers of neighbouring numbers are drawn together, in pages of passes.
    """

    def __init__(self, acceptance: Acceptance, seed: np.random.SeedSequence | int = 0) -> None:
        self._acceptance = acceptance
        self._seed = np.random.SeedSequence(seed) if isinstance(seed, int) else seed
        # Answers begun, by request, for requests with several samples.
        self._answers: Counter[int] = Counter()
        self._page = lru_cache(_PAGES)(self._drawn_page)

    def verify(self, batch: Batch) -> None:
        """Draw the tokens of all passes of the sequences that are new in ``batch``.

        Of a decode with fewer rows those of this pass alone. Raises ``PolicyError`` if the rows of
        the batch do not fit the acceptance.
        """
        group = batch.lockstep
        if not isinstance(group, DraftedDecodes):
            return
        if batch.chunks:
            batch.verify_cut(group.rows - 1, lambda seq: int(self._tokens_by_pass(seq)[1]))
        if group.unjudged and group.rows != self._acceptance.rows:
            raise PolicyError(
                f"draft_rows: {group.rows - 1} does not fit {self._acceptance}; it must be "
                f"{self._acceptance.rows - 1}"
            )
        for seq in tuple(group.unjudged):
            group.set_schedule(seq, self._tokens_by_pass(seq))

    def _tokens_by_pass(self, seq: Sequence) -> IntArray:
        """Return the tokens of a sequence after 0, 1, 2, ... passes, up to its end or beyond.

        One that decodes again, after a preemption, draws on from where it was.
        """
        answer, number = 0, abs(seq.number)  # copies are below 0
        if seq.siblings is not None:
            answer = self._answers[number]
            self._answers[number] += 1
        block, row = divmod(number, _ANSWERS)
        tokens: IntArray = self._page(answer, block, 0)[row]
        page, prompt_token = 1, self._acceptance.prompt_token
        while tokens[-1] < seq.max_tokens + self._acceptance.rows:
            more = tokens[-1] + self._page(answer, block, page)[row, 1:]
            tokens = np.concatenate((tokens, more))
            page += 1
        place = int(tokens.searchsorted(seq.base_generated_tokens - prompt_token))
        return tokens[place:] - tokens[place] if place else tokens

    def _drawn_page(self, answer: int, block: int, page: int) -> IntArray:
        """Return the tokens after 0, 1, 2, ... passes of a page, a row for each request."""
        key = (*self._seed.spawn_key, answer, block, page)
        seed = np.random.SeedSequence(self._seed.entropy, spawn_key=key)
        law, rng = self._acceptance, np.random.default_rng(seed)
        emitted = law.emissions(rng, _ANSWERS, page * _PASSES, _PASSES)
        least, most = int(emitted.min()), int(emitted.max())
        if least < 0 or most > law.rows:
            raise PolicyError(
                f"{least if least < 0 else most} tokens cannot come out of a pass of {law.rows} "
                f"rows; it must be from 0 to {law.rows} ({law})"
            )
        tokens = np.zeros((_ANSWERS, _PASSES + 1), np.int64)
        emitted.cumsum(axis=1, dtype=np.int64, out=tokens[:, 1:])
        return tokens


def require_acceptance(policies: PolicyConfig, acceptance: Acceptance | None) -> None:
    """Raise ``PolicyError`` where decodes verify drafts without a matching acceptance."""
    drafts = policies.draft_rows
    if not drafts:
        return
    if acceptance is None:
        raise PolicyError(
            f"draft_rows: {drafts} needs a technique that judges the drafts; name one for a server "
            f"of --model and --hardware, such as --technique speculative:drafts={drafts}, or set 0"
        )
    if policies.prompt_token != acceptance.prompt_token:
        raise PolicyError(
            f"prompt_token: {policies.prompt_token} does not fit {acceptance}; it must be "
            f"{acceptance.prompt_token}"
        )


def _require(alpha: float = 0.0, **counts: int) -> None:
    require(0 <= alpha <= 1, "alpha", alpha, "from 0 to 1")
    for name, count in counts.items():
        require(count >= 1, name, count, "at least 1")
