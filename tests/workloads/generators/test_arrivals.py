"""Arrival processes: the rate that was asked, the burstiness that was asked, the curve of a day."""

from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, weibull_min

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.arrivals import (
    ArrivalProcess,
    ConstantArrivals,
    GammaArrivals,
    PoissonArrivals,
    WeibullArrivals,
    weibull_cv,
    weibull_shape,
)
from servetwin.workloads.generators.modulated import (
    DiurnalArrivals,
    OnOffArrivals,
    RateCurve,
    Sinusoid,
    Steps,
)
from servetwin.workloads.generators.pauses import ExponentialPause, LognormalPause, MixedPause
from servetwin.workloads.statistics.statistics import coefficient_of_variation, index_of_dispersion

STATIONARY = [
    ConstantArrivals(2.0),
    PoissonArrivals(2.0),
    GammaArrivals(2.0, 2.5),
    WeibullArrivals(2.0, 2.0),
    OnOffArrivals(2.0),
    OnOffArrivals(2.0, on_s=5, off_s=20, off_share=0.3),
]
EVERY = [
    *STATIONARY,
    DiurnalArrivals(PoissonArrivals(2.0), Sinusoid(4.0), period_s=500),
    DiurnalArrivals(GammaArrivals(2.0, 2.0), Steps((1, 0, 3)), period_s=500),
]


def named(process: object) -> str:
    return repr(process)[:60]


def runs(process: ArrivalProcess, count: int, seeds: int) -> list[float]:
    """The seconds that ``count`` arrivals take, once per seed."""
    return [process.gaps_s(count, np.random.default_rng(s)).sum() for s in range(seeds)]


@pytest.mark.parametrize("process", EVERY, ids=named)
def test_the_long_run_rate_is_the_rate_asked(process: ArrivalProcess) -> None:
    count, seeds = 20_000, 30
    spans_s = np.array(runs(process, count, seeds))
    error_s = 4 * float(spans_s.std(ddof=1)) / sqrt(seeds)
    # a silence at the end counts or not; whole days, for those that have days
    assert count / process.rate_per_s == pytest.approx(spans_s.mean(), abs=error_s + 30)


@pytest.mark.parametrize("process", EVERY, ids=named)
def test_gaps_are_seeded_finite_and_as_many_as_asked(process: ArrivalProcess) -> None:
    gaps_s = process.gaps_s(700, np.random.default_rng(5))
    assert gaps_s.shape == (700,)
    assert np.isfinite(gaps_s).all()
    assert gaps_s.min() >= 0
    assert np.array_equal(gaps_s, process.gaps_s(700, np.random.default_rng(5)))
    assert process.gaps_s(0, np.random.default_rng(5)).shape == (0,)


@pytest.mark.parametrize(("shape", "cv"), [(0.72, 1.42), (0.6, 1.76), (0.5, 2.24), (1.0, 1.0)])
def test_weibull_shapes_of_the_reference_table(shape: float, cv: float) -> None:
    assert weibull_cv(shape) == pytest.approx(cv, abs=0.005)
    mean, variance = weibull_min.stats(shape, moments="mv")
    assert weibull_cv(shape) == pytest.approx(sqrt(variance) / mean, rel=1e-9)


@given(st.floats(0.11, 500))
def test_weibull_shape_and_cv_are_inverse(shape: float) -> None:
    assert weibull_shape(weibull_cv(shape)) == pytest.approx(shape, rel=1e-6)


def test_weibull_gaps_have_their_law() -> None:
    process = WeibullArrivals(4.0, 1.76)
    shape = weibull_shape(1.76)
    gaps_s = process.gaps_s(20_000, np.random.default_rng(0))
    law = weibull_min(shape, scale=0.25 / weibull_min.mean(shape))
    assert kstest(gaps_s, law.cdf).pvalue > 0.001


def test_the_azure_code_preset_has_the_reference_figures() -> None:
    """Medians of 20 seeds of 3,436 s at 2.57 /s: CV 13.6; IDC 11, 77, 159 at 1, 10, 60 s."""
    figures = []
    for seed in range(20):
        times_s = np.cumsum(OnOffArrivals(2.57).gaps_s(20_000, np.random.default_rng(seed)))
        times_s = times_s[times_s < 3436]
        cv = coefficient_of_variation(np.diff(times_s))
        figures.append([cv, *(index_of_dispersion(times_s, w) for w in (1, 10, 60))])
    found = np.array(figures, np.float64)
    error = 4 * 1.25 * found.std(axis=0, ddof=1) / sqrt(20)  # of a median of normal values
    for column, reference in enumerate([13.6, 11, 77, 159]):
        median = np.median(found[:, column])
        assert reference == pytest.approx(median, abs=error[column] + 0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WeibullArrivals(0, 2), "the rate must be a positive number, not 0"),
        (lambda: WeibullArrivals(1, 1e9), "Weibull gaps have a cv of 0.00128 to 430, not 1e+09"),
        (lambda: WeibullArrivals(1, 1e-9), "Weibull gaps have a cv of"),
        (lambda: WeibullArrivals(1, float("nan")), "cv of the arrivals must be a positive number"),
        (lambda: OnOffArrivals(1, on_s=0), "the mean time on must be a positive number, not 0"),
        (lambda: OnOffArrivals(1, off_s=-1), "the mean time off must be a positive number, not -1"),
        (lambda: OnOffArrivals(1, off_share=2), "the off rate is 0 to 1 of the on rate, not 2"),
        (lambda: Sinusoid(0.5), "peak / trough must be at least 1, not 0.5"),
        (lambda: Steps(()), "rates must be 0 or positive, some positive"),
        (lambda: Steps((0, 0)), "rates must be 0 or positive, some positive"),
        (lambda: Steps((1, -1)), "rates must be 0 or positive, some positive"),
        (lambda: DiurnalArrivals(PoissonArrivals(1), period_s=0), "the period must be a positive"),
        (lambda: ExponentialPause(0), "the mean think time must be a positive number, not 0"),
        (lambda: LognormalPause(-1), "the median think time must be a positive number, not -1"),
        (lambda: LognormalPause(1, -1), "the sigma of think times must be >= 0, not -1"),
        (
            lambda: MixedPause(LognormalPause(), LognormalPause(), 2),
            "a share must be 0 to 1, not 2",
        ),
    ],
)
def test_impossible_processes(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TraceError) as raised:
        make()
    assert message in str(raised.value)


HOUR_S = 3600.0


def test_on_and_off_rates_meet_their_closed_form() -> None:
    """Asymptotic IDC of an MMPP-2: 1 + 2 p q (on - off)^2 / (rate (1 / on_s + 1 / off_s))."""
    process = OnOffArrivals(4.0, on_s=2.0, off_s=6.0, off_share=0.25)
    on = process.on_rate_per_s
    assert (2 * on + 6 * 0.25 * on) / 8 == pytest.approx(4.0)
    idc = 1 + 2 * (2 / 8) * (6 / 8) * (0.75 * on) ** 2 / (4.0 * (1 / 2 + 1 / 6))
    found = [
        index_of_dispersion(np.cumsum(process.gaps_s(50_000, np.random.default_rng(s))), 200)
        for s in range(20)
    ]
    values = np.array(found, np.float64)
    assert values.mean() == pytest.approx(idc, abs=4 * values.std(ddof=1) / sqrt(20))


@pytest.mark.parametrize("curve", [Sinusoid(2.2), Sinusoid(33.0), Steps((0, 1, 4, 1)), Steps((2,))])
def test_the_rate_follows_its_curve(curve: RateCurve) -> None:
    phases = (np.arange(8) + 0.5) / 8
    factors = curve.factors(phases)
    fine = curve.factors((np.arange(10_000) + 0.5) / 10_000)
    assert fine.mean() == pytest.approx(1)
    assert fine.max() == pytest.approx(curve.peak, rel=1e-6)
    process = DiurnalArrivals(PoissonArrivals(40.0), curve, period_s=HOUR_S)
    times_s = np.cumsum(process.gaps_s(144_000 * 2, np.random.default_rng(0)))
    whole = times_s[times_s < HOUR_S]
    counts, _ = np.histogram(whole, bins=8, range=(0, HOUR_S))
    if isinstance(curve, Steps):
        expected = 18_000 * factors
    else:
        expected = 18_000 * fine.reshape(8, -1).mean(axis=1)
    assert np.all(np.abs(counts - expected) <= 4 * np.sqrt(expected))


def test_peak_over_trough_is_what_was_asked() -> None:
    quarter = Sinusoid(2.2).factors(np.array([0.0, 0.25, 0.75]))
    assert quarter[0] == 1
    assert quarter[1] / quarter[2] == pytest.approx(2.2)


def test_thinning_gives_gaps_of_the_cv_it_says() -> None:
    """A curve of 2 for half of the time and 0 else, much faster than gaps, keeps one in two."""
    thinned = DiurnalArrivals(GammaArrivals(2.0, 0.5), Steps((2, 0)), period_s=1e-3)
    gaps_s = thinned.gaps_s(200_000, np.random.default_rng(0))
    expected = sqrt(0.5 * 0.25 + 0.5)
    assert coefficient_of_variation(gaps_s) == pytest.approx(expected, rel=4 / sqrt(200_000))
