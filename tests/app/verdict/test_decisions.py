"""The figures that decide: limits, exit codes, and verdicts at the edge of an interval."""

import math
from collections.abc import Sequence

import pytest

from servetwin.app.verdict import claims, gate, intervals, recorded, verification
from servetwin.app.verdict.claims import (
    Comparison,
    MetricComparison,
    Outcome,
    compare,
    compare_metric,
    count_limited,
    doubts_about,
    judgeable,
    too_few,
    verdict,
    with_forecast,
    worst,
)
from servetwin.app.verdict.effects import verification as effect_verification
from servetwin.app.verdict.intervals import RelativeVariance, error_interval, variance_within
from servetwin.loadtest.report.records import SCHEDULE_LAG
from servetwin.sim.experiments import predict
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.records.run import Run
from tests.support.figure_frames import load_test

TPOT = "tpot_s.mean"


def test_limits_are_those_that_the_documentation_states() -> None:
    assert claims.DEFAULT_LIMITS == {
        "output_throughput_tokens_per_s": 0.03,
        "tpot_s.mean": 0.05,
        "ttft_s.mean": 0.10,
        "ttft_s.p90": 0.10,
        "ttfo_s.mean": 0.10,
    }
    assert verification.BLACK_BOX_LIMITS == {
        "step_s.all": 0.10,
        "output_throughput_tokens_per_s": 0.05,
        "tpot_s.mean": 0.08,
        "ttft_s.mean": 0.15,
        "ttfo_s.mean": 0.15,
    }
    assert gate.GATE_LIMITS == {**claims.DEFAULT_LIMITS, "finished": 0.01}
    assert (effect_verification.LIMIT, effect_verification.DEAD_BAND) == (0.10, 0.02)


def test_exit_codes_tell_the_outcomes_apart() -> None:
    assert claims.EXIT_CODES == {"holds": 0, "refuted": 1, "cannot tell": 3}


def test_how_thorough_a_verification_is_unless_told() -> None:
    assert (intervals.CONFIDENCE, intervals.MIN_REQUESTS, predict.INTERVAL) == (
        0.90, 30, (0.05, 0.95),
    )  # fmt: skip
    assert predict.REPLICATIONS == 200
    assert (recorded.MOST_REPLICATIONS, recorded.FEWEST_REPLICATIONS) == (200, 20)
    assert verification.Plan() == verification.Plan(
        (0.7,), 5, 200, 0, 3, False, claims.DEFAULT_LIMITS
    )
    assert verification.BLACK_BOX_UTILISATIONS == (0.5, 0.7)
    assert effect_verification.EffectPlan() == effect_verification.EffectPlan(5, 4, 20, 0)


@pytest.mark.parametrize(
    ("value", "low", "high", "error_low", "error_high", "expected"),
    [
        (0.12, 0.10, 0.15, -0.1, 0.3, (-0.165090, 0.444316)),
        (0.12, 0.12, 0.12, -0.1, 0.3, (-0.1, 0.3)),
        (0.12, 0.06, 0.12, 0.2, 0.2, (-0.4, 0.2)),
        (0.12, 0.12, 0.24, 0.2, 0.2, (0.2, 1.4)),
        (0.12, 0.06, 0.24, 0.2, 0.2, (-0.4, 1.4)),
        (0.12, 0.0, 0.12, 0.2, 0.2, (-1.0, 0.2)),
    ],
    ids=["both", "sure forecast", "below", "above", "half or twice", "from nothing"],
)
def test_the_half_widths_of_an_error_and_its_forecast_add_in_squares(
    value: float,
    low: float,
    high: float,
    error_low: float,
    error_high: float,
    expected: tuple[float, float],
) -> None:
    found = with_forecast(Interval(value, low, high), error_low, error_high)
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("predicted", "measured", "limit", "outcome"),
    [
        (Interval(1.5, 1.5, 1.5), [1.0, 1.0], 0.5, "holds"),
        (Interval(0.5, 0.5, 0.5), [1.0, 1.0], 0.5, "holds"),
        (Interval(1.5, 1.5, 1.5), [1.0, 1.0], 0.499, "refuted"),
        (Interval(0.5, 0.5, 0.5), [1.0, 1.0], 0.499, "refuted"),
        (Interval(1.0, 0.5, 2.0), [1.0, 1.0], 0.01, "holds"),
        (Interval(1.0, 1.0, 1.0), [1.0, None], 0.5, "cannot tell"),
        (Interval(1.0, 1.0, 1.0), [0.0, 0.0], 0.5, "cannot tell"),
        (Interval(0.0, 0.0, 0.0), [1.0, 1.0], 0.5, "cannot tell"),
        (Interval(1.0, 1.0, 1.0), [None, None], 0.5, "refuted"),
        (None, [1.0, 1.0], 0.5, "refuted"),
        (None, [None], 0.5, "cannot tell"),
        (Interval(1.5, 1.5, 1.5), [1.0, 1.0], None, None),
        (None, [1.0, 1.0], None, None),
    ],
)  # fmt: skip
def test_a_limit_is_kept_up_to_its_edge(
    predicted: Interval | None,
    measured: Sequence[float | None],
    limit: float | None,
    outcome: Outcome | None,
) -> None:
    assert compare_metric(TPOT, predicted, measured, [], limit).outcome == outcome


@pytest.mark.parametrize(
    ("high", "outcome"), [(1.21, "refuted"), (1.46, "cannot tell")], ids=["narrow", "doubled"]
)
def test_a_forecast_twice_as_wide_refutes_less(high: float, outcome: Outcome) -> None:
    """Measured 28 % more than predicted, with a limit of 5 % and a forecast up to 21 % higher."""
    found = compare_metric(TPOT, Interval(1.0, 1.0, high), [1.28, 1.28], [], 0.05)
    assert found.outcome == outcome


def test_a_row_has_the_interval_of_its_own_chances() -> None:
    within = [RelativeVariance(0.02, 9), RelativeVariance(0.04, 5)]
    predicted = Interval(1.2, 1.0, 1.4, standard_error=0.1)
    found = compare_metric(TPOT, predicted, [0.9, None, 1.1], within, None)
    assert found.measured == pytest.approx(1.0)
    assert found.error == pytest.approx(0.2)
    assert found.noise == pytest.approx(0.2)
    assert (found.error_low, found.error_high) == error_interval(1.2, 0.1, [0.9, 1.1], within)
    assert compare_metric(TPOT, predicted, [0.9], within, None).noise is None


@pytest.mark.parametrize(
    ("outcomes", "doubts", "found"),
    [
        (["holds", None], [], "holds"),
        (["holds", "cannot tell", "refuted"], [], "refuted"),
        (["holds", "cannot tell"], [], "cannot tell"),
        (["refuted"], ["a doubt"], "cannot tell"),
        (["holds"], ["a doubt"], "cannot tell"),
        ([None], [], "cannot tell"),
        ([], [], "cannot tell"),
    ],
)
def test_doubts_and_nothing_judged_give_no_verdict(
    outcomes: list[Outcome | None], doubts: list[str], found: Outcome
) -> None:
    assert verdict(outcomes, doubts) == found
    rows = tuple(
        MetricComparison(TPOT, None, None, None, None, None, None, None, one) for one in outcomes
    )
    assert Comparison(rows, 2, tuple(doubts)).outcome == found
    assert Comparison(rows, 2, tuple(doubts)).as_dict()["holds"] is (found == "holds")


def test_the_worst_of_several_verdicts_decides() -> None:
    assert worst(["cannot tell", "refuted", "holds"]) == "refuted"
    assert worst(["holds", "cannot tell"]) == "cannot tell"
    assert worst(["holds", "holds"]) == "holds"


@pytest.mark.parametrize(
    ("outcome", "limit", "low", "high", "is_vague"),
    [
        ("cannot tell", 0.1, 0.2, 0.3, True),
        ("cannot tell", 0.1, -0.3, -0.2, True),
        ("cannot tell", 0.1, 0.05, 0.3, False),
        ("cannot tell", 0.1, -0.3, -0.05, False),
        ("cannot tell", 0.1, 0.1, 0.3, False),
        ("cannot tell", 0.1, -0.3, -0.1, False),
        ("refuted", 0.1, 0.2, 0.3, False),
        ("cannot tell", 0.1, None, None, False),
        ("cannot tell", None, 0.2, 0.3, False),
    ],
)
def test_a_vague_metric_is_outside_but_for_the_forecast(
    outcome: Outcome, limit: float | None, low: float | None, high: float | None, is_vague: bool
) -> None:
    row = MetricComparison(TPOT, None, 1.0, 0.25, low, high, None, limit, outcome)
    assert Comparison((row,), 2).vague == [TPOT] * is_vague


def load_of(finished: int, *limits: str) -> Run:
    run = load_test(40, scheduled_s=0.0, first_token_s=1.0, last_token_s=2.0)
    run.requests.loc[finished:, "status"] = "failed"
    run.extra["delivered"]["limited_by"] = list(limits)
    return run


LATE = f"{SCHEDULE_LAG} 180 ms, over 170 ms"


def test_doubts_name_the_limited_clients_and_the_fewest_requests() -> None:
    runs = [load_of(40), load_of(29, LATE), load_of(31, "CPU 97%", LATE)]
    limited = (
        "the client was limited in {} of 3 load tests ({}); give it a core of its own, or more "
        "--processes"
    )
    few = "29 finished requests are too few; send at least 30, better 200"
    assert doubts_about(runs) == [limited.format(2, LATE), few]
    assert doubts_about([load_of(30)]) == []
    assert doubts_about([]) == [few.replace("29", "0")]
    assert too_few(30, "counted") == []
    assert count_limited(runs) == 2


def test_runs_whose_client_kept_up_are_judged_if_there_are_two() -> None:
    kept, late, busy = load_of(40), load_of(40, LATE), load_of(40, "CPU 97%")
    assert judgeable([kept, late]) == [kept, late]
    assert judgeable([kept, late, kept]) == [kept, kept]
    assert judgeable([late, busy, late]) == [late, busy, late]


def test_two_runs_that_differ_by_a_tenth_place_an_error_within_a_third() -> None:
    found = compare_metric(TPOT, Interval(1.0, 1.0, 1.0), [0.95, 1.05], [], 0.4)
    assert found.error_low is not None
    assert found.error_high is not None
    assert found.error_low > -0.4 < found.error_high
    half = 6.313751514675 * math.sqrt(0.005 / 2)
    assert found.error_high == pytest.approx(math.exp(half) - 1, rel=1e-9)
    assert found.outcome == "holds"


def noisy(latencies_s: list[float], *limits: str) -> Run:
    run = load_test(len(latencies_s), scheduled_s=0.0, first_token_s=1.0, last_token_s=2.0)
    run.requests["tpot_s"] = latencies_s
    run.requests["scheduled_s"] = range(len(latencies_s))
    run.extra["delivered"]["limited_by"] = list(limits)
    return run


def test_a_comparison_counts_the_chance_within_its_runs() -> None:
    """Latencies of single requests widen an interval that the means of the runs do not."""
    apart = [1.0 + 0.3 * (number % 7) for number in range(40)]
    runs = [noisy(apart), noisy(apart)]
    point = {TPOT: Interval(1.9, 1.9, 1.9)}
    requests = noisy([1.9] * 40).requests
    within = [variance_within(TPOT, requests, run.requests) for run in runs]
    found = {row.metric: row for row in compare(point, runs, {}, requests=requests).metrics}[TPOT]
    mean = sum(apart) / 40
    assert None not in within
    expected = error_interval(1.9, 0.0, [mean, mean], [one for one in within if one])
    assert (found.error_low, found.error_high) == pytest.approx(expected)
    assert found.error_low != found.error_high
    alone = {row.metric: row for row in compare(noisy([1.9] * 40), runs, {}).metrics}[TPOT]
    assert (alone.error_low, alone.error_high) == pytest.approx(expected)


def test_a_comparison_counts_its_limited_runs() -> None:
    runs = [noisy([1.0] * 40), noisy([1.0] * 40, "CPU 97%")]
    found = compare({TPOT: Interval(1.0, 1.0, 1.0)}, runs, {TPOT: 0.1})
    assert (found.repeats, found.limited, found.set_aside) == (2, 1, 0)
    assert found.as_dict()["outcome"] == "cannot tell"
