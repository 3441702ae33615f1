"""Which requests a timeline shows, and in which window."""

import numpy as np
import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.why.shown_run import (
    MOST_LINES,
    busiest_window,
    in_window,
    window_around,
)
from tests.support.dashboard_runs import busy_run


def test_a_window_has_who_was_there_by_arrival() -> None:
    start_s, end_s = busiest_window(busy_run())
    requests = busy_run().run.requests
    there = (requests["scheduled_s"] <= end_s) & (requests["last_token_s"] >= start_s)
    choice = in_window(busy_run(), (start_s, end_s))
    assert set(choice.rows) <= set(np.flatnonzero(there))
    assert len(choice.rows) == min(there.sum(), MOST_LINES)
    assert requests["scheduled_s"].iloc[choice.rows].is_monotonic_increasing


def test_many_are_sampled_and_the_chosen_one_is_among_them() -> None:
    whole_s = busy_run().start_s, busy_run().end_s
    sampled = in_window(busy_run(), whole_s)
    assert f"300 requests in this window; {MOST_LINES} of them drawn" in sampled.description
    left_out = next(row for row in range(300) if row not in sampled.rows)
    choice = in_window(busy_run(), whole_s, left_out)
    assert set(choice.rows) == {*sampled.rows, left_out}
    assert in_window(busy_run(), (1e6, 2e6), left_out).description == "0 requests in this window"


def test_the_busiest_window_is_about_the_peak() -> None:
    start_s, end_s = busiest_window(busy_run())
    requests = busy_run().run.requests
    counts = [
        ((requests["scheduled_s"] <= t) & (requests["last_token_s"] > t)).sum()
        for t in requests["scheduled_s"]
    ]
    assert start_s <= requests["scheduled_s"].iloc[int(np.argmax(counts))] <= end_s
    assert busy_run().start_s <= start_s < end_s <= busy_run().end_s


@pytest.mark.parametrize("row", [0, 150, 299])
def test_a_window_around_a_request_holds_all_of_it(row: int) -> None:
    start_s, end_s = window_around(busy_run(), row)
    request = busy_run().run.requests.iloc[row]
    assert busy_run().start_s <= start_s <= request["scheduled_s"]
    assert request["last_token_s"] <= end_s <= busy_run().end_s
