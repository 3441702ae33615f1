"""Verifications that no server was needed for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from servetwin.app.verdict.capacity import Saturation, compare_capacity
from servetwin.app.verdict.claims import METRICS, compare
from servetwin.app.verdict.forecast import Forecast, LevelForecast
from servetwin.app.verdict.power import Refutable
from servetwin.app.verdict.verification import Level, Verification
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.decision_check import DecisionCheck
from servetwin.sim.experiments.predict import Interval, interval, predict
from servetwin.sim.step_times.profile import Profile, StepTimeFit
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.transform import at_rate, limit
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
    figures = {metric: interval(summaries, metric) for metric in METRICS}
    intervals = {
        name: Interval(off * one.value, off * one.low, off * one.high)
        for name, one in figures.items()
        if one is not None
    }
    forecast = LevelForecast(utilisation, trace, found.run, intervals, measured[0].requests)
    comparison = compare(intervals, measured, requests=measured[0].requests)
    return Level(forecast, trace, measured, comparison, Refutable(0.06, None))


def verification_of(
    profile: Profile, levels: list[Level], decisions: DecisionCheck | None = None
) -> Verification:
    forecasts = tuple(level.prediction for level in levels)
    forecast = Forecast(profile, Interval(5.0, 4.8, 5.2), forecasts, 0, 0.01, {})
    return Verification(forecast, levels, decisions)


def a_verification(config: PolicyConfig = CONFIG) -> Verification:
    """One that reads a step log, at one load."""
    return verification_of(a_profile(config), [a_level(0.7)], DecisionCheck(3, 3))


def a_black_box_verification(off: float = 1.0, **not_identified: str) -> Verification:
    """One that sees what clients see, at two loads."""
    profile = a_profile(CONFIG, identified={"not identified": not_identified})
    return verification_of(profile, [a_level(0.5, off), a_level(0.7, off)])


def a_verification_near_saturation(capacities_per_s: Sequence[float]) -> Verification:
    """One whose load tests of the capacity completed so many requests per second."""
    level = a_level(0.9)
    bursts = [
        load_test(40, scheduled_s=0.0, last_token_s=1 + np.arange(40) / per_s)
        for per_s in capacities_per_s
    ]
    sent = at_rate(level.trace, 0.9 * sum(capacities_per_s) / len(bursts))
    found = verification_of(a_profile(CONFIG), [replace(level, trace=sent)])
    comparison = compare_capacity(found.capacity_per_s, bursts)
    return replace(found, saturation=Saturation(bursts, comparison))
