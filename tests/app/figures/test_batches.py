"""Batches as bars: joining loses nothing, and the mix is the share of rows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app import figures
from servetwin.app.figures.timeline import MIXES

STEPS = st.lists(
    st.tuples(st.floats(1e-3, 1), st.integers(1, 9), st.integers(0, 20), st.integers(0, 50)),
    min_size=1,
    max_size=60,
)


@given(STEPS, st.integers(1, 20))
def test_joined_batches_lose_nothing(rows: list[tuple[float, int, int, int]], most: int) -> None:
    lasted_s, counts, decodes, prompts = map(np.array, zip(*rows, strict=True))
    ends_s = lasted_s.cumsum()
    steps = pd.DataFrame(
        {
            "replica": np.arange(len(rows)) % 2, "start_s": ends_s - lasted_s, "end_s": ends_s,
            "steps": counts, "decode_sequences": decodes, "rows": decodes + prompts,
        }
    )  # fmt: skip
    bars = figures.batch_bars(steps, most)
    assert bars.groupby("replica").size().max() <= max(most, len(rows) if len(rows) <= most else 0)
    assert bars["busy_s"].sum() == pytest.approx(lasted_s.sum())
    assert bars["steps"].sum() == counts.sum()
    assert bars["rows"].sum() == (counts * (decodes + prompts)).sum()
    assert set(bars["mix"]) <= set(MIXES)


@pytest.mark.parametrize(
    ("decodes", "rows", "mix"),
    [
        (4, 4, "decodes only"),
        (4, 5, "mostly decodes"),
        (4, 8, "mostly decodes"),
        (4, 9, "mostly prompts"),
        (0, 9, "prompts only"),
        (0, 0, "decodes only"),
    ],
)
def test_the_mix_is_the_share_of_rows(decodes: int, rows: int, mix: str) -> None:
    step = {"replica": 0, "start_s": 0.0, "end_s": 1.0, "steps": 3}
    frame = pd.DataFrame([{**step, "decode_sequences": decodes, "rows": rows}])
    assert figures.batch_bars(frame)["mix"].tolist() == [mix]
