"""Arrival processes whose rate changes with time: on/off bursts and the curve of a day."""

from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Protocol

import numpy as np

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.arrivals import (
    ArrivalProcess,
    FloatArray,
    PoissonArrivals,
    check_positive,
    describe,
)

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class OnOffArrivals:
    """Poisson arrivals at two rates that take turns, each for an exponential time (MMPP-2).

    The off rate is ``off_share`` of the on rate; the on rate is what gives the mean rate asked. The
    defaults are fitted to the Azure 2023 code trace: bursts of 11.3 s at 5.1 times the mean rate,
    silences of 46.5 s.
    """

    rate_per_s: float
    on_s: float = 11.3
    off_s: float = 46.5
    off_share: float = 0.0

    def __post_init__(self) -> None:
        check_positive("rate", self.rate_per_s)
        check_positive("mean time on", self.on_s)
        check_positive("mean time off", self.off_s)
        if not 0 <= self.off_share <= 1:
            raise TraceError(f"the off rate is 0 to 1 of the on rate, not {self.off_share:g}")

    def describe(self) -> str:
        """Return the mean rate and the mean times."""
        quiet = f"{100 * self.off_share:.3g} % of their rate" if self.off_share else "silence"
        return (
            f"arrivals at {self.rate_per_s:g}/s on average, in bursts of {self.on_s:g} s, then "
            f"{self.off_s:g} s of {quiet}"
        )

    @property
    def on_rate_per_s(self) -> float:
        """The rate during a burst."""
        weighted_s = self.on_s + self.off_share * self.off_s
        return self.rate_per_s * (self.on_s + self.off_s) / weighted_s

    def gaps_s(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return ``count`` gaps in seconds, from the first arrival after a random moment on.

        The expected number of arrivals grows along a broken line; the arrivals of a Poisson process
        of rate 1, read back through that line, are those of the modulated one.
        """
        unit_rng, dwell_rng = rng.spawn(2)
        expected = np.cumsum(unit_rng.exponential(size=count + 1))
        ends_s, ends_expected = self._line(expected[-1], dwell_rng)
        return np.diff(np.interp(expected, ends_expected, ends_s))

    def _line(self, until: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Return the corners (time, expected arrivals so far) up to ``until`` expected arrivals."""
        starts_off = rng.random() * (self.on_s + self.off_s) >= self.on_s
        means_s = np.array([self.on_s, self.off_s])
        rates = self.on_rate_per_s * np.array([1, self.off_share])
        if starts_off:
            means_s, rates = means_s[::-1], rates[::-1]
        cycles = int(1.2 * until / (means_s @ rates)) + 8
        times_s, expected = np.zeros(1), np.zeros(1)
        while expected[-1] < until:
            dwells_s = rng.exponential(means_s, (cycles, 2))
            times_s = np.append(times_s, times_s[-1] + np.cumsum(dwells_s))
            expected = np.append(expected, expected[-1] + np.cumsum(dwells_s * rates))
        return times_s, expected


class RateCurve(Protocol):
    """How the rate of a period goes, as multiples of its mean."""

    @property
    def peak(self) -> float:
        """The largest multiple."""

    def factors(self, phases: FloatArray) -> FloatArray:
        """Return the multiples at these parts of a period, 0 to 1; their mean over it is 1."""


@dataclass(frozen=True, slots=True)
class Sinusoid:
    """A sine wave that starts at the mean, rising; its peak is ``peak_to_trough`` troughs."""

    peak_to_trough: float = 2.2

    def __post_init__(self) -> None:
        if not (isfinite(self.peak_to_trough) and self.peak_to_trough >= 1):
            raise TraceError(f"peak / trough must be at least 1, not {self.peak_to_trough:g}")

    @property
    def peak(self) -> float:
        """1 + (R - 1) / (R + 1) at a ratio of R."""
        return 2 * self.peak_to_trough / (self.peak_to_trough + 1)

    def factors(self, phases: FloatArray) -> FloatArray:
        """Return the wave at these parts of a period."""
        return 1 + (self.peak - 1) * np.sin(2 * np.pi * phases)

    def describe(self) -> str:
        """Return how high the wave is."""
        return f"a sine wave whose peak is {self.peak_to_trough:g} times its trough"


@dataclass(frozen=True, slots=True)
class Steps:
    """Equal parts of a period, each with its own rate: 24 of them are the hours of a day.

    Two rates that are ``even`` are the ends of a line over the period; then it starts again.
    """

    rates: tuple[float, ...]
    even: bool = False

    def __post_init__(self) -> None:
        good = all(isfinite(rate) and rate >= 0 for rate in self.rates)
        if not (good and sum(self.rates) > 0):
            raise TraceError(f"rates must be 0 or positive, some positive: {self.rates}")

    @property
    def peak(self) -> float:
        """The largest rate over the mean."""
        return max(self.rates) * len(self.rates) / sum(self.rates)

    def factors(self, phases: FloatArray) -> FloatArray:
        """Return the rates over their mean at these parts of a period."""
        factors = np.array(self.rates) * len(self.rates) / sum(self.rates)
        line: FloatArray = factors[0] + (factors[-1] - factors[0]) * phases
        parts: FloatArray = factors[(phases * len(factors)).astype(np.int64)]
        return line if self.even else parts

    def describe(self) -> str:
        """Return both ends of a line, or how many steps there are, and their range."""
        if self.even:
            return f"a line from {self.rates[0]:g} to {self.rates[1]:g}"
        span = f"{min(self.rates):g} to {max(self.rates):g}"
        return f"{len(self.rates)} steps of relative rates {span}"


@dataclass(frozen=True, slots=True)
class DiurnalArrivals:
    """A process whose rate follows a curve, by default once a day (thinning, Lewis and Shedler).

    The process runs at the rate of the peak, and each of its arrivals is kept with the chance
    curve / peak. This is exact for the rate of any process; gaps of cv c keep, where a share p of
    the arrivals is kept, a squared cv of p c^2 + 1 - p.
    """

    around: ArrivalProcess
    curve: RateCurve = Sinusoid()
    period_s: float = DAY_S

    def __post_init__(self) -> None:
        check_positive("period", self.period_s)

    @property
    def rate_per_s(self) -> float:
        """The mean rate over whole periods."""
        return self.around.rate_per_s

    def gaps_s(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return ``count`` gaps in seconds; the curve starts with the first arrival."""
        process_rng, thinning_rng = rng.spawn(2)
        around: Any = self.around  # a dataclass, which the protocol cannot say
        at_peak: ArrivalProcess = replace(around, rate_per_s=self.rate_per_s * self.curve.peak)
        kept_s, now_s = np.zeros(1), 0.0
        while len(kept_s) <= count:
            times_s = now_s + np.cumsum(at_peak.gaps_s(max(count, 1000), process_rng))
            now_s = times_s[-1]
            chances = self.curve.factors(times_s / self.period_s % 1) / self.curve.peak
            kept_s = np.append(kept_s, times_s[thinning_rng.random(len(times_s)) < chances])
        return np.diff(kept_s[: count + 1])

    def describe(self) -> str:
        """Return the process, and the curve that its rate follows."""
        period = f"{self.period_s / 3600:g} h" if self.period_s >= 3600 else f"{self.period_s:g} s"
        return f"{describe(self.around)} on average, following {describe(self.curve)} over {period}"


def ramp_arrivals(
    rate_per_s: float,
    from_per_s: float | None = None,
    to_per_s: float | None = None,
    steps: int | None = None,
    period_s: float = DAY_S,
) -> DiurnalArrivals:
    """Return Poisson arrivals whose rate goes from one to another over the period.

    With ``steps`` it goes in that number of equal stairs. ``rate_per_s``, an argument of every
    process, does not count: a ramp has rates of its own. Raises ``TraceError`` without these.
    """
    if from_per_s is None or to_per_s is None:
        raise TraceError("--arrivals ramp: wants two rates, such as ramp:from=1,to=10")
    curve = Steps((from_per_s, to_per_s), even=True)
    if steps is not None:
        if steps < 2:
            raise TraceError(f"--arrivals ramp: a staircase has at least 2 steps, not {steps}")
        rise = (to_per_s - from_per_s) / (steps - 1)
        curve = Steps(tuple(from_per_s + step * rise for step in range(steps)))
    return DiurnalArrivals(PoissonArrivals((from_per_s + to_per_s) / 2), curve, period_s)
