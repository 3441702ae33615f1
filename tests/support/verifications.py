"""Verifications that no server was needed for."""

from dataclasses import replace
from typing import Any

import pandas as pd

from servetwin.app.verdict.claims import METRICS, Comparison, MetricComparison, compare
from servetwin.app.verdict.forecast import Forecast, LevelForecast
from servetwin.app.verdict.two_claims import STEPS, StepsInBeats, TwoClaims
from servetwin.app.verdict.verification import Level, Verification
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.decision_check import DecisionCheck
from servetwin.sim.experiments.predict import Interval, interval, predict
from servetwin.sim.records.metrics import common
from servetwin.sim.step_times.profile import Profile, StepTimeFit
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.transform import limit
from tests.support.figure_frames import load_test

REQUESTS = 40
CONFIG = PolicyConfig()


def a_profile(config: PolicyConfig, **engine: Any) -> Profile:
    fit = StepTimeFit(coefficients={"constant": 0.003, "rows_from_0": 2e-5})
    return Profile(
        name="made", origin="computed from data sheets", machine={}, engine=engine,
        policies=config.as_dict(), layouts={"paged": fit},
    )  # fmt: skip


def a_level(utilisation: float, off: float = 1.0, count: int = REQUESTS) -> Level:
    """A prediction and two load tests; ``off`` times what these measured is what is predicted."""
    trace = limit(sample_trace(), count)
    found = predict(trace, CONFIG, a_profile(CONFIG), replications=2)
    names = [request.request_id for request in trace]
    measured = [load_test(count, request_id=names), load_test(count, request_id=names)]
    summaries = [run.summary() for run in measured]
    figures = {metric: interval(summaries, metric) for metric in common(METRICS, summaries)}
    intervals = {
        name: Interval(off * one.value, off * one.low, off * one.high)
        for name, one in figures.items()
        if one is not None
    }
    forecast = LevelForecast(utilisation, trace, found.run, intervals)
    comparison = compare(intervals, measured, requests=measured[0].requests)
    return Level(forecast, trace, measured, two_claims(comparison))


def two_claims(comparison: Comparison) -> TwoClaims:
    """The rest is ``comparison``; the step times are right, known to 1 %, by the stamps of half."""
    exact = Interval(0.01, 0.01, 0.01)
    steps = MetricComparison(STEPS, exact, 0.01, 0.0, -0.01, 0.01, None, 0.05, "holds")
    read = StepsInBeats(pd.DataFrame(), 0, 1.0, 0.0, 0.0, clock="stamps", told=0.5)
    return TwoClaims(replace(comparison, metrics=(steps, *comparison.metrics)), read, {})


def verification_of(
    profile: Profile, levels: list[Level], decisions: DecisionCheck | None = None
) -> Verification:
    forecasts = tuple(level.prediction for level in levels)
    forecast = Forecast(profile, Interval(5.0, 4.8, 5.2), forecasts, 0, {})
    return Verification(forecast, levels, decisions)


def a_verification(config: PolicyConfig = CONFIG) -> Verification:
    """One that reads a step log, at one load."""
    return verification_of(a_profile(config), [a_level(0.7)], DecisionCheck(3, 3))


def a_black_box_verification(off: float = 1.0, **not_identified: str) -> Verification:
    """One that sees what clients see, at two loads."""
    profile = a_profile(CONFIG, identified={"not identified": not_identified})
    return verification_of(profile, [a_level(0.5, off), a_level(0.7, off)])
