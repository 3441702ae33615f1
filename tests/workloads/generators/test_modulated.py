"""Modulated arrivals: on and off, the curve of a day."""

from math import sqrt

import numpy as np
import pytest

from servetwin.workloads.generators.arrivals import GammaArrivals, PoissonArrivals
from servetwin.workloads.generators.modulated import (
    DiurnalArrivals,
    OnOffArrivals,
    RateCurve,
    Sinusoid,
    Steps,
)
from servetwin.workloads.statistics.statistics import coefficient_of_variation, index_of_dispersion

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
