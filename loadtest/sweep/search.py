"""The search for the knee: which rate to try next, from the levels that there are.

Three bisections in the logarithm of the rate share their levels: for the rate at which the share of
requests within the SLO crosses the wanted one, then for the two ends of its interval, the highest
rate that surely holds and the lowest that surely fails. Each ends when its bracket is narrow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

from servetwin.loadtest.sweep.attainment import least_requests
from servetwin.loadtest.sweep.knee import Bracket, RatedLevel, held, perhaps_held, surely_held

FIRST_SHARE = 0.5
"""The first rate, as a share of the saturation rate."""
END_WIDTHS = 2.5
"""The ends of the interval are found to so many times the precision of the knee."""


@dataclass(frozen=True, slots=True)
class KneeSearch:
    """What is searched: a rate at which ``wanted`` of the requests keep the SLO.

    No rate above ``saturation_per_s`` is tried, where the queue grows for as long as the requests
    last, nor below ``alone_per_s``, at which one user after the other is served. ``precision`` is
    the relative width at which a bracket is narrow, ``requests`` the size of a level.
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
        wider = 1 + END_WIDTHS * self.precision
        if self.can_prove:
            yield surely_held(levels, self.wanted), wider
        yield perhaps_held(levels, self.wanted), wider

    def _inside(self, bracket: Bracket, narrow: float) -> float | None:
        """Return a rate inside a bracket; None where it is narrow or ends at a limit."""
        below, above = bracket.below, bracket.above
        if below is None and above is None:
            return FIRST_SHARE * self.saturation_per_s
        if above is None:
            assert below is not None
            return self.saturation_per_s if below < self.saturation_per_s else None
        if below is None:
            lowest = min(self.alone_per_s, FIRST_SHARE * self.saturation_per_s)
            return max(lowest, above / 2) if above > lowest else None
        return sqrt(below * above) if above > below * narrow else None
