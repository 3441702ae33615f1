"""The held-out error is that of the noise."""

import numpy as np

from servetwin.sim.step_times.tables.interpolate import Curve, held_out_error


def test_held_out_error_is_that_of_the_noise_where_the_truth_is_smooth() -> None:
    """Next to dense neighbours a prediction has at least the noise of one point, at most of two."""
    x = np.arange(1.0, 2001.0)
    noise = 0.05 * np.random.default_rng(5).standard_normal(2000)
    error = held_out_error(Curve(x, (1 + x) * np.exp(noise)))
    assert error is not None
    assert error.points == 1000
    assert 0.6745 * 0.05 < error.median < 0.6745 * 0.05 * np.sqrt(2)
    assert 1.645 * 0.05 < error.p90 < 1.645 * 0.05 * np.sqrt(2)
    exact = held_out_error(Curve(x, 1 + x))
    assert exact is not None
    assert exact.p90 < 1e-9
    assert held_out_error(Curve(x[:3], x[:3])) is None
