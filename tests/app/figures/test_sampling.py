"""Samples: few points, both ends, in order."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.figures.canvas import cdf_points, evenly


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=2000))
def test_cut_distributions_keep_their_ends_and_their_order(values: list[float]) -> None:
    x, share = cdf_points(pd.Series(values), most=50)
    assert len(x) == min(len(values), 50)
    assert (x[0], x[-1], share[-1]) == (min(values), max(values), 1)
    assert (np.diff(x) >= 0).all()
    for at, part in zip(x, share, strict=True):
        assert np.mean(np.array(values) < at) < part <= np.mean(np.array(values) <= at)


@given(st.integers(1, 5000), st.integers(2, 300))
def test_samples_are_small_and_have_both_ends(count: int, most: int) -> None:
    sample = evenly(pd.DataFrame({"at": range(count)}), most)["at"].tolist()
    assert len(sample) == min(count, most)
    assert (sample[0], sample[-1]) == (0, count - 1)
    assert len(set(sample)) == len(sample)
