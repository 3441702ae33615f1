"""Distributions of pauses."""

from math import sqrt

import numpy as np
import pytest

from servetwin.workloads.generators.pauses import ExponentialPause, LognormalPause, MixedPause


def test_pauses_have_their_moments_and_streams() -> None:
    rng = np.random.default_rng
    exponential = ExponentialPause(30.0).sample(20_000, rng(0))
    assert exponential.mean() == pytest.approx(30, abs=4 * 30 / sqrt(20_000))
    logs = np.log(LognormalPause().sample(20_000, rng(0)))
    assert logs.mean() == pytest.approx(np.log(120), abs=4 * 1.5 / sqrt(20_000))
    assert np.percentile(np.exp(logs), 90) == pytest.approx(820, rel=0.06)
    mixed = MixedPause(ExponentialPause(1e-9), ExponentialPause(50.0), 0.15).sample(20_000, rng(0))
    assert (mixed > 1e-6).mean() == pytest.approx(0.15, abs=4 * sqrt(0.15 * 0.85 / 20_000))
    other = MixedPause(ExponentialPause(2e-9), ExponentialPause(50.0), 0.15).sample(20_000, rng(0))
    assert np.array_equal(mixed[mixed > 1e-6], other[mixed > 1e-6])
