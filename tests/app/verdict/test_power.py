"""The smallest change that a load test would have refuted."""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from servetwin.app.verdict import power
from servetwin.app.verdict.claims import Comparison, compare
from servetwin.app.verdict.forecast import make_forecast
from servetwin.app.verdict.power import CHANGES, refutable_change
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.predict import Interval, Prediction, predict, run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.trace import Trace
from tests.support.fake_calibrator import PROFILE, TRACE
from tests.support.report_runs import pretended

LIMITS = {"tpot_s.mean": 0.05}
FORECAST = make_forecast(TRACE, PROFILE, (0.7,), replications=5)
LEVEL = FORECAST.levels[0]


@cache
def _predict(trace: Trace, profile: str, **more: Any) -> Prediction:
    scaled = Profile.model_validate_json(profile)
    return predict(trace, scaled.policy_config(), scaled, **more)


def same_prediction(
    trace: Trace, config: PolicyConfig, profile: Profile, **more: Any
) -> Prediction:
    """Predict what several tests try once."""
    return _predict(trace, profile.as_json(), **more)


@pytest.fixture(autouse=True)
def predictions_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "predict", same_prediction)


def comparison(half_width: float, forecast: float = 0.0) -> Comparison:
    """Judge two exact runs, as if the intervals of error and forecast were so wide."""
    run = pretended(run_once(LEVEL.trace, Scenario(PROFILE.policy_config(), PROFILE)))
    found = compare(LEVEL.intervals, [run, run], LIMITS, requests=LEVEL.requests)
    rows = [
        replace(row, predicted=around(row.predicted, forecast),
                error_low=-half_width, error_high=half_width)
        for row in found.metrics
    ]  # fmt: skip
    return replace(found, metrics=tuple(rows))


def around(predicted: Interval | None, half_width: float) -> Interval | None:
    if predicted is None:
        return None
    value = predicted.value
    return Interval(value, value * (1 - half_width), value * (1 + half_width))


def test_a_vague_forecast_is_refuted_by_larger_changes_only() -> None:
    sure, vague = (
        refutable_change(LEVEL, PROFILE, comparison(0.01, own), LIMITS) for own in (0.0, 0.2)
    )
    assert sure.slower is not None
    assert vague.slower is not None
    assert vague.slower >= sure.slower + 0.06


@pytest.mark.parametrize(("half_width", "least"), [(0.0, 0.03), (0.03, 0.04), (0.10, 0.08)])
def test_a_wider_interval_refutes_less(half_width: float, least: float) -> None:
    """A slower engine also has larger batches: TPOT grows faster than its steps."""
    found = refutable_change(LEVEL, PROFILE, comparison(half_width), LIMITS)
    assert found.slower in CHANGES
    assert found.slower is not None
    assert least <= found.slower <= half_width + 0.06
    assert found.faster is not None
    assert found.faster >= least


def test_what_is_refutable_is_refuted_and_the_next_smaller_change_is_not() -> None:
    """On an engine without chance a replication is exact, so the ratio can be taken by hand."""
    fit = PROFILE.layouts["paged"].model_copy(update={"draws": [], "noise": [1.0], "drift": 0.0})
    certain = PROFILE.model_copy(update={"layouts": {"paged": fit}})
    config = certain.policy_config()
    half_width = 0.02
    found = refutable_change(LEVEL, certain, comparison(half_width), LIMITS)
    assert found.slower is not None
    assert found.faster is not None
    truth_s = run_once(LEVEL.trace, Scenario(config, certain)).requests["tpot_s"].mean()
    half = math.log((1 + half_width) / (1 - half_width)) / 2
    for change, sign in ((found.slower, 1), (found.faster, -1)):
        smaller = CHANGES[CHANGES.index(change) - 1]
        for tried, refuted in ((change, True), (smaller, False)):
            scaled = certain.scaled((1 + tried) ** sign)
            tpot_s = run_once(LEVEL.trace, Scenario(config, scaled)).requests["tpot_s"].mean()
            off = sign * math.log(tpot_s / truth_s) - half
            assert (off > sign * math.log(1 + sign * 0.05)) is refuted


def test_at_equal_utilisation_an_engine_is_as_busy_whatever_its_speed() -> None:
    """What slower steps add to TPOT is then their own share alone, not that of larger batches."""
    alike = refutable_change(LEVEL, PROFILE, comparison(0.0), LIMITS, equal_utilisation=True)
    busier = refutable_change(LEVEL, PROFILE, comparison(0.0), LIMITS)
    assert alike.slower == 0.06, "the first of the changes that is above the limit of 5 %"
    assert busier.slower is not None
    assert busier.slower < alike.slower


def test_where_nothing_can_be_told_nothing_is_refutable() -> None:
    doubtful = replace(comparison(0.01), doubts=("the machine drifted",))
    found = refutable_change(LEVEL, PROFILE, doubtful, LIMITS)
    assert (found.slower, found.faster) == (None, None)
    wide = refutable_change(LEVEL, PROFILE, comparison(0.95), LIMITS)
    assert (wide.slower, wide.faster) == (None, None)
