"""Errors in bands of requests in flight."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.trust.error_by_load import error_by_band, in_flight
from servetwin.app.figures import agreement
from tests.support.figure_frames import load_test, requests_frame


@pytest.mark.parametrize(
    ("stamps_s", "others"),
    [
        ([(0, 10), (1, 2), (3, 4)], [0, 1, 1]),
        ([(0, 1), (1, 2)], [0, 0]),
        ([(0, 9), (1, 9), (2, None), (3, 4)], [0, 1, 2, 2]),
    ],
)
def test_in_flight_counts_who_was_sent_and_not_done(
    stamps_s: list[tuple[float, float | None]], others: list[int]
) -> None:
    frame = pd.DataFrame(stamps_s, columns=["scheduled_s", "last_token_s"], dtype=float)
    assert in_flight(frame).tolist() == others


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=30))
def test_in_flight_as_counted_one_by_one(pairs: list[tuple[int, int]]) -> None:
    comes_s, lasts_s = np.array(pairs, float).T
    goes_s = comes_s + lasts_s
    there = [((comes_s <= t) & (goes_s > t)).sum() - 1 for t in comes_s]
    frame = pd.DataFrame({"scheduled_s": comes_s, "last_token_s": goes_s})
    assert in_flight(frame).tolist() == there


@given(st.floats(0.5, 2.0), st.integers(1, 8), st.integers(0, 99))
def test_a_prediction_off_by_a_factor_is_off_by_it_in_every_band(
    factor: float, bands: int, seed: int
) -> None:
    measured = requests_frame(40, seed)
    predicted = measured.assign(ttft_s=factor * measured["ttft_s"])
    found = error_by_band(predicted, [measured, measured], "ttft_s", bands)
    assert found["requests"].sum() == 40
    assert len(found) <= bands
    for column in ("error", "low", "high"):
        assert found[column].to_numpy() == pytest.approx(factor - 1)
    assert found["noise"].to_numpy() == pytest.approx(0)
    assert (found["most"].to_numpy()[:-1] < found["least"].to_numpy()[1:]).all()


def test_the_interval_of_a_band_holds_its_error_and_noise_is_the_spread_of_repeats() -> None:
    measured = requests_frame(60)
    slower = measured.assign(ttft_s=1.1 * measured["ttft_s"])
    predicted = measured.assign(ttft_s=requests_frame(60, seed=9)["ttft_s"])
    found = error_by_band(predicted, [measured, slower], "ttft_s")
    assert ((found["low"] <= found["error"]) & (found["error"] <= found["high"])).all()
    assert found["noise"].to_numpy() == pytest.approx(0.1 / 1.05)
    assert error_by_band(predicted, [measured], "ttft_s")["noise"].isna().all()


def test_requests_that_did_not_finish_are_in_no_band() -> None:
    measured = load_test(20, status=["finished"] * 15 + ["failed"] * 5).requests
    found = error_by_band(requests_frame(20), [measured], "e2e_s", 3)
    assert found["requests"].sum() == 15
    nothing = error_by_band(requests_frame(20), [measured.iloc[:0]], "e2e_s")
    assert nothing.empty
    assert agreement.error_per_band(nothing, "e2e_s").alt.endswith("not known.")
