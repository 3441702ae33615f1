"""The interval of an error: its coverage, and the two sources of chance that it counts."""

import math

import numpy as np
import pandas as pd
import pytest

from servetwin.app.verdict.intervals import (
    CONFIDENCE,
    MIN_REQUESTS,
    RelativeVariance,
    error_interval,
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
    found = variance_within(
        "output_throughput_tokens_per_s",
        requests([1.0] * 100, "e2e_s"),
        requests((1 + off).tolist(), "e2e_s"),
    )
    assert found is not None
    assert math.sqrt(found.value) == pytest.approx(off.std(ddof=1) / 100)


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
