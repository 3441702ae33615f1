"""The steady part of a run: laws of the rule, stamps worked out by hand, and queueing theory."""

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.records.metrics import derive, summarize
from servetwin.sim.records.steady_part import (
    MIN_REQUESTS,
    describe_steady,
    is_growth,
    mser5,
    number_found,
    steady_part,
)
from tests.support.figure_frames import requests_frame
from tests.support.theory.queues import mg1_wait_s

WHOLE = st.lists(st.integers(-1000, 1000).map(lambda n: 5 * n), min_size=50, max_size=200)
"""Series whose batch means are whole, so that sums of them are exact."""


@given(WHOLE, st.integers(-1000, 1000), st.sampled_from([-4, 0.25, 2, 1024]))
def test_neither_origin_nor_unit_moves_the_cut(
    series: list[int], shift: int, factor: float
) -> None:
    values = np.array(series)
    assert mser5(factor * (values + shift)) == mser5(values)


@given(st.floats(-1e9, 1e9), st.integers(MIN_REQUESTS, 300))
def test_nothing_is_cut_off_a_constant_series(value: float, count: int) -> None:
    assert mser5(np.full(count, value)) == 0


@given(st.integers(15, 180), st.sampled_from([-10.0, 10.0]))
def test_a_transient_is_cut_off_at_its_end(length: int, off: float) -> None:
    values = np.tile([1.0, -1.0], 200)
    values[:length] += off
    cut = mser5(values)
    assert cut is not None
    assert cut % 5 == 0
    assert length <= cut < length + 5


def test_noise_seldom_moves_the_cut_far() -> None:
    """A quiet stretch may begin later by chance; a cut before the end of the transient is wrong."""
    rng, length = np.random.default_rng(0), 66
    values = rng.uniform(-1, 1, (400, 400))
    values[:, :length] += 10.0
    cuts = [mser5(series) for series in values]
    assert all(cut is None or cut >= length for cut in cuts)
    assert sum(cut is not None and cut < length + 60 for cut in cuts) >= 0.9 * len(cuts)


@given(st.integers(MIN_REQUESTS, 400), st.floats(0.1, 10), st.integers(0, 100))
def test_a_series_that_grows_to_the_end_never_settles(count: int, slope: float, seed: int) -> None:
    noise = np.random.default_rng(seed).uniform(-1, 1, count)
    assert mser5(slope * np.arange(count) + noise) is None


def test_a_minimum_at_the_end_of_the_first_half_is_none() -> None:
    assert mser5(np.repeat([8.0, 0.0], [95, 105])) == 95
    assert mser5(np.repeat([8.0, 0.0], [100, 100])) is None


def test_a_number_that_grows_throughout_is_none_of_a_stable_queue() -> None:
    """The rise is that from the second quarter to the last: here half a request for each."""
    assert is_growth(10.0, 400)
    assert not is_growth(9.9, 100)
    assert not is_growth(10.0, 401)


def stamps(*pairs: tuple[float, float]) -> pd.DataFrame:
    """Requests by arrival and last token."""
    return pd.DataFrame(pairs, columns=["scheduled_s", "last_token_s"])


def test_each_request_finds_those_that_came_and_have_not_left() -> None:
    arrived = stamps((0, 4), (1, 2), (1, 9), (2, np.nan), (2, 3), (4, 5), (9, 10))
    assert number_found(arrived).tolist() == [0, 1, 2, 2, 2, 1, 0]


def test_figures_of_the_steady_part_are_of_its_requests_and_its_time() -> None:
    """A burst of twenty that takes a second each, then one request a second of 0.2 s."""
    arrivals_s = np.concatenate([np.zeros(20), np.arange(20.5, 100)])
    ends_s = np.concatenate([np.arange(1.0, 21), arrivals_s[20:] + 0.2])
    frame = requests_frame(
        100, scheduled_s=arrivals_s, first_token_s=ends_s - 0.1, last_token_s=ends_s,
        output_tokens=3,
    )  # fmt: skip
    shuffled = frame.sample(frac=1, random_state=1)
    found = steady_part(shuffled)
    assert found.requests["request_id"].tolist() == frame["request_id"][20:].tolist()
    steady = summarize(shuffled)["steady"]
    assert (steady["unsettled"], steady["start_s"], steady["end_s"]) == (None, 20.5, 99.5)
    assert steady["requests"] == steady["ttft_s"]["count"] == 80
    assert steady["ttft_s"]["max"] == pytest.approx(0.1)
    assert steady["tpot_s"]["mean"] == pytest.approx(0.05)
    assert steady["request_throughput_per_s"] == pytest.approx(79 / 79), "the last ends after it"
    assert steady["output_throughput_tokens_per_s"] == pytest.approx(3 * 79 / 79)
    assert describe_steady(steady) == (
        "steady part: from 20.5 s, when the server has filled, to the last arrival at 99.5 s; "
        "80 requests"
    )


def test_neither_warm_up_nor_failures_are_in_the_figures() -> None:
    frame = requests_frame(100).assign(warm_up=np.arange(100) < 10)
    frame.loc[50, "status"] = "failed"
    frame.loc[50, "last_token_s"] = np.nan
    steady = summarize(frame)["steady"]
    assert steady["requests"] == 90
    assert steady["ttft_s"]["count"] == 89
    ended = frame["last_token_s"].between(0, 49.5).sum()
    assert steady["request_throughput_per_s"] == pytest.approx(ended / 49.5)


def stalled() -> pd.DataFrame:
    """Sixty requests half a second apart, of which the first thirty wait for the same moment."""
    frame = requests_frame(60)
    first = frame["scheduled_s"] < 15
    return frame.assign(last_token_s=frame["scheduled_s"].where(~first, 14.9) + 0.1)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (requests_frame(MIN_REQUESTS - 1), "fewer than 50 requests"),
        (
            requests_frame(100).assign(last_token_s=1e3),
            "never settles: the number in the system grows",
        ),
        (requests_frame(0), "fewer than 50 requests"),
        (stalled(), "never settles: MSER-5 finds no end of the filling in the first half"),
    ],
)
def test_a_run_without_a_steady_part_says_why(frame: pd.DataFrame, why: str) -> None:
    steady = summarize(frame)["steady"]
    assert steady["unsettled"].startswith(why)
    assert steady["requests"] == steady["ttft_s"]["count"] == 0
    assert steady["start_s"] is steady["end_s"] is steady["output_throughput_tokens_per_s"] is None
    assert describe_steady(steady) == f"steady part: none; {steady['unsettled']}"
    assert summarize(requests_frame(MIN_REQUESTS))["steady"]["unsettled"] is None


def mm1_requests(utilisation: float, backlog: int, seed: int) -> pd.DataFrame:
    """A thousand requests of M/M/1 with services of 1 s, after ``backlog`` that came at once."""
    rng = np.random.default_rng(seed)
    arrivals_s = np.concatenate(
        [np.zeros(backlog), np.cumsum(rng.exponential(1 / utilisation, 1000))]
    )
    services_s = rng.exponential(1.0, len(arrivals_s))
    starts_s = lindley(arrivals_s, services_s)
    ends_s = starts_s + services_s
    frame = requests_frame(len(arrivals_s), scheduled_s=arrivals_s)
    return derive(frame.assign(first_token_s=starts_s, last_token_s=ends_s))


def lindley(
    arrivals_s: npt.NDArray[np.float64], services_s: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return when each service begins: at the arrival, or when the one before has ended."""
    starts_s, free_s = np.zeros(len(arrivals_s)), 0.0
    for row, (arrival_s, service_s) in enumerate(zip(arrivals_s, services_s, strict=True)):
        starts_s[row] = max(arrival_s, free_s)
        free_s = starts_s[row] + service_s
    return starts_s


@pytest.mark.parametrize("backlog", [0, 60])
def test_the_mean_wait_of_mm1_is_that_of_the_formula(backlog: int) -> None:
    """Whatever it begins with: empty, or with a queue that the whole run still shows."""
    runs = [summarize(mm1_requests(0.5, backlog, seed)) for seed in range(40)]
    steady = np.array([run["steady"]["ttft_s"]["mean"] for run in runs], dtype=float)
    steady = steady[np.isfinite(steady)]
    assert len(steady) >= 39, "hardly a stable run is said not to settle"
    expected = mg1_wait_s(0.5, 1.0, 1.0)
    assert abs(steady.mean() - expected) < 3.6 * steady.std(ddof=1) / len(steady) ** 0.5
    whole = np.mean([run["ttft_s"]["mean"] for run in runs])
    assert whole > 2 * expected if backlog else whole == pytest.approx(expected, rel=0.2)


def test_more_than_is_served_never_settles() -> None:
    found = [steady_part(mm1_requests(1.3, 0, seed)).unsettled for seed in range(10)]
    assert [why is not None and why.startswith("never settles") for why in found] == [True] * 10
