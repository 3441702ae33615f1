"""The interval of an error: its coverage, and the two sources of chance that it counts."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit

from servetwin.app.verdict.intervals import (
    CONFIDENCE,
    MIN_REQUESTS,
    RelativeVariance,
    error_interval,
    ratio_interval,
    variance_within,
)
from tests.support.effort import REDUCTION


def requests(latencies_s: list[float], column: str = "ttft_s") -> pd.DataFrame:
    count = len(latencies_s)
    stamps = {"scheduled_s": np.arange(count) * 1.0, "last_token_s": np.arange(count) + 1.0}
    names = [f"r{number}" for number in range(count)]
    return pd.DataFrame({"request_id": names, "status": "finished", **stamps, column: latencies_s})


@pytest.mark.parametrize("runs", [1, 2, 3, 5])
@pytest.mark.parametrize("between", [0.0, 0.01, 0.03])
def test_the_true_error_is_covered_as_often_as_stated(runs: int, between: float) -> None:
    """Two per cent of chance within a run, known from 15 blocks, and more between runs.

    One run cannot show how runs differ, and two seldom do: there the coverage is lower, and no more
    is promised than this test demands.
    """
    rng = np.random.default_rng(runs)
    trials, hits = 4_000 // REDUCTION, 0
    for _ in range(trials):
        chance = between * rng.standard_normal(runs) + 0.02 * rng.standard_normal(runs)
        within = [RelativeVariance(0.02**2 * rng.chisquare(15) / 15, 15) for _ in range(runs)]
        found = error_interval(1.1, 0.0, np.exp(chance).tolist(), within)
        assert found is not None
        hits += found[0] <= 0.1 <= found[1]
    least = {(1, 0.01): 0.83, (1, 0.03): 0.60, (2, 0.03): 0.80}.get((runs, between), CONFIDENCE)
    error = math.sqrt(least * (1 - least) / trials)
    assert hits / trials > least - 0.02 - 3 * error


@pytest.mark.parametrize(
    ("measured", "within", "expected"),
    [
        ([1.0, 1.0], [], (0.1, 0.1)),
        ([1.0], [], None),
        ([0.0, 0.0], [], None),
        # ln(1.1) +- t(0.95, 1) * sqrt(variance / runs): 6.3138 * 0.1 / sqrt(2) / sqrt(2)
        ([0.95, 1.05], [], (1.1 * math.exp(-0.31569) - 1, 1.1 * math.exp(0.31569) - 1)),
        # the chance within a run is larger: t(0.95, 20) * sqrt(0.04 / 2)
        (
            [0.95, 1.05],
            [RelativeVariance(0.04, 10)] * 2,
            (1.1 * math.exp(-0.24391) - 1, 1.1 * math.exp(0.24391) - 1),
        ),
    ],
    ids=["equal runs", "one run", "nothing measured", "between runs", "within a run"],
)
def test_intervals_by_hand(
    measured: list[float],
    within: list[RelativeVariance],
    expected: tuple[float, float] | None,
) -> None:
    found = error_interval(1.1, 0.0, measured, within)
    assert found == (expected and pytest.approx(expected, rel=1e-4))


WITHIN = RelativeVariance(0.5, 10)
NORMAL = 1e6
"""Degrees of freedom of a variance that is known."""


@pytest.mark.parametrize(
    ("standard_error", "measured", "within", "variances"),
    [
        (0.0, [1.9, 2.1], [], [(0.0025, 1)]),
        (0.0, [1.9, 2.0, 2.1], [], [(0.0025 / 3, 2)]),
        (0.22, [1.9, 2.1], [], [(0.01, NORMAL), (0.0025, 1)]),
        (0.22, [2.0, 2.0], [], [(0.01, NORMAL)]),
        (0.22, [2.0], [RelativeVariance(0.04, 9)], [(0.01, NORMAL), (0.04, 9)]),
        (0.0, [1.9, 2.1], [RelativeVariance(0.02, 9), RelativeVariance(0.04, 5)], [(0.015, 14)]),
        (0.0, [1.0, 3.0], [WITHIN, WITHIN], [(0.25, 20)]),
        (0.0, [1.0, 3.0], [replace(WITHIN, value=0.49)] * 2, [(0.25, 1)]),
    ],
    ids=[
        "two runs", "three runs", "a prediction of few draws", "draws alone", "one run",
        "runs of other lengths", "equal chances", "chance between is larger",
    ],
)  # fmt: skip
def test_variances_add_and_their_freedom_is_satterthwaite_s(
    standard_error: float,
    measured: list[float],
    within: list[RelativeVariance],
    variances: list[tuple[float, float]],
) -> None:
    total = sum(value for value, _ in variances)
    freedom = total**2 / sum(value**2 / free for value, free in variances)
    half = float(stdtrit(freedom, 0.95)) * total**0.5
    expected = (1.1 * math.exp(-half) - 1, 1.1 * math.exp(half) - 1)
    found = error_interval(2.2, standard_error, measured, within)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("predicted", [0.0, -1.0])
def test_what_has_no_logarithm_has_no_interval(predicted: float) -> None:
    assert error_interval(predicted, 0.0, [1.0, 1.0], []) is None
    assert error_interval(1.0, 0.0, [-1.0, 1.0], []) is None


def test_many_certain_parts_are_normal() -> None:
    low, high = ratio_interval(2.0, [RelativeVariance(1e-4, math.inf)] * 4)
    half = float(stdtrit(NORMAL, 0.95)) * 0.02
    assert (low, high) == pytest.approx(
        (2 * math.exp(-half) - 1, 2 * math.exp(half) - 1), rel=1e-9, abs=0
    )


def test_two_runs_that_differ_by_three_accept_no_prediction() -> None:
    """0.5 and 1.5 measured: 3.0 is neither confirmed nor is anything else."""
    low, high = error_interval(3.0, 0.0, [0.5, 1.5], []) or (0.0, 0.0)
    assert low < -0.5
    assert high > 1.0


def test_the_monte_carlo_error_widens_the_interval() -> None:
    sharp = error_interval(1.0, 0.0, [1.0, 1.01], [])
    blurred = error_interval(1.0, 0.1, [1.0, 1.01], [])
    assert sharp is not None
    assert blurred is not None
    assert blurred[1] - blurred[0] > 0.3 > 0.2 > sharp[1] - sharp[0]


def test_what_prompts_do_to_both_sides_is_no_chance() -> None:
    """Latencies of 1 to 100, known but for 1 %: the chance is that of the 1 %."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(1, 100, 400)
    measured = truth * np.exp(0.01 * rng.standard_normal(400))
    for metric, most in (("ttft_s.mean", 0.001), ("ttft_s.p90", 0.01)):
        found = variance_within(metric, requests(truth.tolist()), requests(measured.tolist()))
        assert found is not None
        assert 0.0002 < math.sqrt(found.value) < most
        assert found.freedom == 19


def by_hand(predicted: list[float], measured: list[float], percentile: float | None) -> float:
    """Draw blocks of neighbours around the circle of requests, one index after the other."""
    count = len(predicted)
    size = round(math.sqrt(count))
    starts = np.random.default_rng(0).integers(count, size=(400, math.ceil(count / size)))
    logs = []
    for row in starts:
        places = [(start + step) % count for start in row for step in range(size)][:count]
        sides = [[side[place] for place in places] for side in (predicted, measured)]
        if percentile is None:
            ours, theirs = (sum(side) / count for side in sides)
        else:
            ours, theirs = (float(np.percentile(side, percentile)) for side in sides)
        logs.append(math.log(ours / theirs))
    return float(np.var(logs, ddof=1))


@pytest.mark.parametrize(
    ("count", "point", "percentile", "blocks"),
    [(30, "mean", None, 6), (30, "p90", 90.0, 6), (50, "mean", None, 8), (50, "p50", 50.0, 8)],
)
def test_the_variance_within_a_run_is_that_of_blocks_drawn_by_hand(
    count: int, point: str, percentile: float | None, blocks: int
) -> None:
    rng = np.random.default_rng(count)
    predicted, measured = (rng.uniform(0.1, 1, count).tolist() for _ in range(2))
    found = variance_within(f"ttft_s.{point}", requests(predicted), requests(measured))
    assert found is not None
    assert found.value == pytest.approx(by_hand(predicted, measured, percentile), rel=1e-9)
    assert found.freedom == blocks - 1


def test_requests_are_drawn_in_the_order_of_their_arrival() -> None:
    """Whatever the order of the rows, and only those that finished on both sides."""
    rng = np.random.default_rng(1)
    predicted, measured = (requests(rng.uniform(0.1, 1, 40).tolist()) for _ in range(2))
    measured["scheduled_s"] += 7.0
    expected = variance_within("ttft_s.mean", predicted, measured)
    shuffled = measured.sample(frac=1, random_state=3)
    assert variance_within("ttft_s.mean", predicted.iloc[::-1], shuffled) == expected
    unknown = measured.assign(ttft_s=measured["ttft_s"].where(measured.index > 10))
    assert variance_within("ttft_s.mean", predicted, unknown) is None, "29 are left"


def test_requests_that_share_a_queue_count_as_few() -> None:
    """The same noise, in waves of 40 requests: as if there were a tenth of the requests."""
    rng = np.random.default_rng(0)
    alone = np.exp(0.1 * rng.standard_normal(1_600))
    waves = np.repeat(np.exp(0.1 * rng.standard_normal(40)), 40)
    flat = requests([1.0] * 1_600)
    found = [
        variance_within("ttft_s.mean", flat, requests(noise.tolist())) for noise in (alone, waves)
    ]
    assert found[0] is not None
    assert found[1] is not None
    assert found[1].value > 8 * found[0].value


def test_a_makespan_is_as_uncertain_as_one_latency() -> None:
    rng = np.random.default_rng(0)
    off = 0.5 * rng.standard_normal(100)
    predicted = rng.uniform(0.5, 2.0, 100)
    measured = requests((predicted + off).tolist(), "e2e_s")
    measured[["scheduled_s", "last_token_s"]] += 50.0
    found = variance_within(
        "output_throughput_tokens_per_s", requests(predicted.tolist(), "e2e_s"), measured
    )
    assert found is not None
    assert math.sqrt(found.value) == pytest.approx(off.std(ddof=1) / 100)
    assert found.freedom == 99


def test_few_requests_say_nothing_about_chance() -> None:
    few = requests([1.0] * (MIN_REQUESTS - 1))
    assert variance_within("ttft_s.mean", few, few) is None
    failed = requests([1.0] * 100).assign(status="failed")
    assert variance_within("ttft_s.mean", requests([1.0] * 100), failed) is None


@pytest.mark.parametrize("zeros", [1, 20, 40])
def test_a_figure_of_nothing_has_no_variance(zeros: int) -> None:
    """Whole answers have no time between tokens: as soon as a resample has only such ones."""
    some = [0.01] * (40 - zeros) + [0.0] * zeros
    found = variance_within("ttft_s.p50", requests([0.01] * 40), requests(some))
    assert (found is None) == (zeros > 1)
