"""Sparklines of known counts."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.reports.tables import sparkline, sparkline_lines
from tests.support.figure_frames import requests_frame

A, B = requests_frame(seed=1), requests_frame(seed=2)


@given(st.lists(st.floats(0.001, 1e5), min_size=1, max_size=300), st.integers(1, 80))
def test_a_sparkline_shows_where_values_are(values: list[float], width: int) -> None:
    line = sparkline(pd.Series(values), width)
    assert len(line) == width
    assert "█" in line
    if max(values) > min(values) * (1 + 1e-9):
        assert width == 1 or " " not in (line[0], line[-1])


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], ""),
        ([np.nan], ""),
        ([0, 0, 0, 0, 1, 2, 2, 3], "█▂▄▂"),
        ([1, 1, 10, 10, 10, 10, 100, 1000], "▄█▂▂"),
        ([1, 1.9, 3.9, 4.1], "▄▄ █"),
        ([0.02, 0.02, 0.02 + 1e-17], "█   "),
    ],
)
def test_sparklines_of_known_counts(values: list[float], drawn: str) -> None:
    assert sparkline(pd.Series(values, dtype=float), width=4) == drawn


def test_sparkline_lines_fit_a_terminal_and_name_their_ends() -> None:
    lines = sparkline_lines(A)
    assert [line.split()[0] for line in lines] == ["TTFT", "TPOT", "E2E"]
    assert f"{A['ttft_s'].min() * 1e3:.4g}" in lines[0]
    assert f"{A['ttft_s'].max() * 1e3:.4g}" in lines[0]
    assert max(map(len, lines)) <= 100
    assert sparkline_lines(A.assign(status="failed")) == []
