"""The knee: the highest rate that holds the SLO, estimated from levels, with an interval.

The estimate is where the shares, made monotone by pooling neighbours that contradict each other
(Ayer, Brunk, Ewing, Reid and Silverman, "An empirical distribution function for sampling with
incomplete information", 1955), cross the wanted share; between two levels, on a line over the
logarithm of the rate. The interval reaches from the highest rate up to which every level surely
holds to the lowest rate from which on every level surely fails. It contains the knee in at least
90 of 100 searches: ``tests/loadtest/sweep/test_knee.py`` counts that on a queue whose knee is
known.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import exp, inf, log, sqrt

from servetwin.loadtest.sweep.attainment import Attainment, least_requests

KNEE_CONFIDENCE = 0.90


@dataclass(frozen=True, slots=True)
class RatedLevel:
    """The attainment of a level at a rate, in requests/s."""

    rate_per_s: float
    attainment: Attainment


@dataclass(frozen=True, slots=True)
class Bracket:
    """The rates, in requests/s, between which an answer changes from yes to no.

    ``below`` is None where it is no at every level, ``above`` where it is yes at every one.
    """

    below: float | None
    above: float | None


@dataclass(frozen=True, slots=True)
class Knee:
    """The highest rate that holds the SLO, in requests/s, and its interval.

    An end is None where no level shows it. ``rate_per_s`` is None where the SLO is held at no level
    or at all of them: the knee is then below ``low_per_s`` or above.
    """

    rate_per_s: float | None
    low_per_s: float | None
    high_per_s: float | None


def find_knee(levels: Sequence[RatedLevel], wanted: float) -> Knee:
    """Return the knee that the levels show; ``wanted`` is the share that must keep the SLO."""
    return Knee(
        _crossing(levels, wanted),
        surely_held(levels, wanted).below,
        perhaps_held(levels, wanted).above,
    )


def held(levels: Sequence[RatedLevel], wanted: float) -> Bracket:
    """Return the bracket of "the pooled share is at least ``wanted``"."""
    return _bracket(levels, sum(share >= wanted for share in monotone(levels)))


def surely_held(levels: Sequence[RatedLevel], wanted: float) -> Bracket:
    """Return the bracket of "this level and all slower ones surely hold"."""
    holding = takewhile(lambda level: level.attainment.low >= wanted, _by_rate(levels))
    return _bracket(levels, len(list(holding)))


def perhaps_held(levels: Sequence[RatedLevel], wanted: float) -> Bracket:
    """Return the bracket of "this level or a faster one may hold"."""
    failing = takewhile(lambda level: level.attainment.high < wanted, reversed(_by_rate(levels)))
    return _bracket(levels, len(levels) - len(list(failing)))


def _bracket(levels: Sequence[RatedLevel], holding: int) -> Bracket:
    """Return the bracket above the first ``holding`` levels."""
    rates = [None, *(level.rate_per_s for level in _by_rate(levels)), None]
    return Bracket(rates[holding], rates[holding + 1])


def monotone(levels: Sequence[RatedLevel]) -> list[float]:
    """Return the shares by rate, pooled where a faster level has a higher one."""
    blocks: list[tuple[float, float, int]] = []  # share, weight, levels
    for level in _by_rate(levels):
        share, weight, count = level.attainment.share, level.attainment.effective, 1
        while blocks and blocks[-1][0] < share:
            before, other, more = blocks.pop()
            share = (before * other + share * weight) / (other + weight)
            weight, count = weight + other, count + more
        blocks.append((share, weight, count))
    return [share for share, _, count in blocks for _ in range(count)]


def _crossing(levels: Sequence[RatedLevel], wanted: float) -> float | None:
    bracket = held(levels, wanted)
    if bracket.below is None or bracket.above is None:
        return None
    rates = [level.rate_per_s for level in _by_rate(levels)]
    shares = dict(zip(rates, monotone(levels), strict=True))
    over, under = shares[bracket.below], shares[bracket.above]
    part = (over - wanted) / (over - under)
    return exp(log(bracket.below) + part * log(bracket.above / bracket.below))


def _by_rate(levels: Sequence[RatedLevel]) -> list[RatedLevel]:
    return sorted(levels, key=lambda level: level.rate_per_s)


# The first rate, as a share of the saturation rate.
FIRST_SHARE = 0.5
# From rate to rate of a climb.
GROWTH = 3.0
# Precision of the ends of the interval, as a multiple of that of the knee.
END_WIDTHS = 2.5


@dataclass(frozen=True, slots=True)
class KneeSearch:
    """What is searched: a rate at which ``wanted`` of the requests keep the SLO.

    No rate above ``saturation_per_s`` is tried, where the queue grows for as long as the requests
    last, nor below ``alone_per_s``, at which one user after the other is served. Where the
    saturation is not known (inf), rates grow from there until one fails, and only the knee is
    searched, not the ends of its interval. ``precision`` is the relative width at which a bracket
    is narrow, ``requests`` the size of a level.
    """

    wanted: float
    alone_per_s: float
    saturation_per_s: float
    precision: float
    requests: int

    def next_rate_per_s(self, levels: Sequence[RatedLevel]) -> float | None:
        """Return the next rate to try, in requests/s; None when all brackets are narrow."""
        rates = (self._inside(bracket, width) for bracket, width in self._brackets(levels))
        return next((rate for rate in rates if rate is not None), None)

    @property
    def can_prove(self) -> bool:
        """Whether a level without a miss is large enough to prove that the SLO holds."""
        return self.requests >= least_requests(self.wanted)

    def _brackets(self, levels: Sequence[RatedLevel]) -> Iterator[tuple[Bracket, float]]:
        yield held(levels, self.wanted), 1 + self.precision
        if self.saturation_per_s == inf:
            return
        wider = 1 + END_WIDTHS * self.precision
        if self.can_prove:
            yield surely_held(levels, self.wanted), wider
        yield perhaps_held(levels, self.wanted), wider

    def _inside(self, bracket: Bracket, narrow: float) -> float | None:
        """Return a rate inside a bracket; None where it is narrow or ends at a limit."""
        below, above = bracket.below, bracket.above
        if above is None and self.saturation_per_s == inf:
            return GROWTH * (below or self.alone_per_s)
        if below is None and above is None:
            return FIRST_SHARE * self.saturation_per_s
        if above is None:
            assert below is not None
            return self.saturation_per_s if below < self.saturation_per_s else None
        if below is None:
            lowest = min(self.alone_per_s, FIRST_SHARE * self.saturation_per_s)
            return max(lowest, above / 2) if above > lowest else None
        return sqrt(below * above) if above > below * narrow else None
