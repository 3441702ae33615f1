"""Every case meets theory, and a verdict needs a narrow interval around the exact value."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from tests.support.effort import REDUCTION, WIDENING, only_in_ci
from tests.support.queue_cases import batches, case, networks, single_server
from tests.support.queue_cases.case import SelftestCase
from tests.support.queue_cases.judge import (
    CASES,
    FigureCheck,
    UnknownCase,
    cases_named,
    half_width,
    judge,
    judge_named,
)

SIZES = [
    (case, "REQUESTS"),
    (single_server, "ORDERED_REQUESTS"),
    (batches, "BATCHES"),
    (networks, "TURNS"),
]
LIKE_OTHERS = {"sharing-hyperexponential", "sjf"}
"""Long cases of a law that a shorter one meets too, by another distribution."""
JUDGED = [name for name in CASES if name != "erlang-memory"]
"""``test_losses`` holds that memory refuses the very requests that slots refuse."""


@pytest.fixture
def reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate fewer requests in all cases, outside CI."""
    for module, size in SIZES:
        monkeypatch.setattr(module, size, getattr(module, size) // REDUCTION)


@pytest.mark.slow
@pytest.mark.usefixtures("reduced")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=only_in_ci if name in LIKE_OTHERS else ()) for name in JUDGED]
)
def test_scenario_meets_theory(name: str) -> None:
    """Inside a 99.9 % interval over replications that is itself narrow enough to have power."""
    precision = WIDENING * CASES[name].precision
    outcomes = list(judge(replace(CASES[name], precision=precision)))
    assert outcomes
    for outcome in outcomes:
        assert outcome.holds, outcome


@pytest.mark.parametrize("scenario", CASES.values(), ids=CASES)
def test_intervals_are_narrow_and_stand_on_ten_replications_or_nothing_is_random(
    scenario: SelftestCase,
) -> None:
    assert scenario.precision <= 0.08
    assert scenario.replications == 1 or scenario.replications >= 10


def drawn(mean: float, deviation: float, exact: float) -> FigureCheck:
    """The outcome of a scenario that draws normal numbers."""

    def measure(rng: np.random.Generator) -> dict[str, float]:
        return {"value": float(rng.normal(mean, deviation))}

    (outcome,) = judge(SelftestCase("drawn", "", {"value": exact}, measure))
    return outcome


@pytest.mark.parametrize(
    ("mean", "deviation", "verdict"),
    [(1.0, 0.01, "holds"), (1.05, 0.01, "FAILED"), (0.95, 0.01, "FAILED"), (1.0, 1.0, "too wide")],
)
def test_a_verdict_needs_a_narrow_interval_around_the_exact_value(
    mean: float, deviation: float, verdict: str
) -> None:
    outcome = drawn(mean, deviation, exact=1.0)
    assert (outcome.verdict, outcome.holds) == (verdict, verdict == "holds")


@pytest.mark.slow
def test_intervals_cover_as_often_as_they_say() -> None:
    """20,000 intervals of ten normal values: the misses are binomial, here within 4 s.e."""
    samples = norm.rvs(size=(20_000, 10), random_state=1)
    misses = np.mean([abs(values.mean()) > half_width(values) for values in samples])
    assert abs(misses - 0.001) < 4 * np.sqrt(0.001 / 20_000)
    low, high = student.interval(0.999, 9, samples[0].mean(), samples[0].std(ddof=1) / np.sqrt(10))
    assert half_width(samples[0]) == pytest.approx((high - low) / 2)


@pytest.mark.parametrize(("error", "holds"), [(0.0, True), (1e-12, True), (1e-8, False)])
def test_an_identity_holds_to_nine_digits(error: float, holds: bool) -> None:
    (identity,) = cases_named(["static-makespan"])
    assert judge_named("static-makespan") == list(judge(identity))
    off = {figure: value * (1 + error) for figure, value in identity.exact.items()}
    assert [outcome.holds for outcome in judge(replace(identity, exact=off))] == [holds]


@pytest.mark.slow
def test_a_wrong_theory_is_found() -> None:
    (scenario,) = cases_named(["batch-service"])
    wrong = {figure: 1.06 * value for figure, value in scenario.exact.items()}
    assert [o.verdict for o in judge(replace(scenario, exact=wrong))] == ["FAILED", "FAILED"]


def test_an_unknown_scenario_is_named_with_a_near_one() -> None:
    with pytest.raises(UnknownCase, match="no scenario 'mm2'; did you mean 'm"):
        cases_named(["mm2"])
