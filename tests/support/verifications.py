"""Verifications that no server was needed for."""

from dataclasses import replace
from typing import Any

from app.twin.verification import Level, Verification
from loadtest.report.comparison import METRICS, Comparison, compare
from policies.config import PolicyConfig
from sim.experiments.decision_check import DecisionCheck
from sim.experiments.predict import Prediction, interval, predict
from sim.records.run import Run
from sim.step_times.profile import Profile, StepTimeFit
from tests.support.figure_frames import load_test
from workloads.sample import sample_trace
from workloads.trace import Trace
from workloads.transform import limit

REQUESTS = 20
CONFIG = PolicyConfig()


def a_profile(config: PolicyConfig, **engine: Any) -> Profile:
    fit = StepTimeFit(coefficients={"constant": 0.003, "rows_from_0": 2e-5})
    return Profile(
        name="made", origin="computed", machine={}, engine=engine,
        policies=config.as_dict(), layouts={"paged": fit},
    )  # fmt: skip


def judged(trace: Trace, off: float = 1.0) -> tuple[Prediction, list[Run], Comparison]:
    """A prediction and two load tests; ``off`` times what these measured is what is predicted."""
    prediction = predict(trace, CONFIG, a_profile(CONFIG), replications=2)
    measured = [load_test(REQUESTS), load_test(REQUESTS)]
    summaries = [run.summary() for run in measured]
    found = {metric: interval(summaries, metric) for metric in METRICS}
    predicted = {
        name: replace(one, value=off * one.value) for name, one in found.items() if one is not None
    }
    return prediction, measured, compare(predicted, measured)


def a_verification(config: PolicyConfig = CONFIG) -> Verification:
    """One that reads a step log, at one load."""
    trace = limit(sample_trace(), REQUESTS)
    level = Level(0.7, trace, *judged(trace))
    return Verification(a_profile(config), 5.0, [level], DecisionCheck(3, 3))


def a_black_box_verification(off: float = 1.0, **not_identified: str) -> Verification:
    """One that sees what clients see, at two loads."""
    trace = limit(sample_trace(), REQUESTS)
    levels = [Level(utilisation, trace, *judged(trace, off)) for utilisation in (0.5, 0.7)]
    profile = a_profile(CONFIG, identified={"not identified": not_identified})
    return Verification(profile, 5.0, levels)
