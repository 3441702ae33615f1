"""Calibrated step times, changed by a formula."""

from dataclasses import replace

import numpy as np
import pytest

from servetwin.app.verdict.effects.prediction import ChangedServer, ChangedStepTime
from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.profile import StepTimeFit
from servetwin.sim.step_times.roofline.efficiency import IDEAL, Efficiency
from servetwin.sim.step_times.step_time import FEATURES, LinearStepTime
from tests.support.known_effects import CONFIG, PROFILE, sides

DECODE = BatchShape(2, 20, 2, (), decode_contexts=(8, 12))


def constant(seconds: float) -> LinearStepTime:
    return LinearStepTime.of({"constant": seconds, "decode_context_tokens": 1e-6})


@pytest.mark.parametrize(
    ("calibrated_s", "changed_s"),
    [
        (5.0, 2.0 + 1.0),  # 1 s that the roofline does not know stays
        (4.0, 2.0),
        (2.0, 1.0),  # a roofline that is twice too slow is so on both sides
    ],
)
def test_what_the_roofline_does_not_know_stays(calibrated_s: float, changed_s: float) -> None:
    without, with_it = constant(4.0), constant(2.0)
    changed = ChangedStepTime(constant(calibrated_s), without, with_it)
    assert changed.seconds(DECODE)[0] == pytest.approx(changed_s, rel=1e-4)
    assert len(changed.seconds(DECODE, 3)) == 3
    scaled = ChangedStepTime(constant(calibrated_s), without, with_it, 1.5)
    assert scaled.seconds(DECODE)[0] == pytest.approx(1.5 * changed_s, rel=1e-4)


def test_a_draw_has_its_own_fit_and_the_draws_of_the_calibration() -> None:
    draws = [[value] + [0.0] * (len(FEATURES) - 1) for value in (1.0, 2.0)]
    fit = StepTimeFit(coefficients={"constant": 3.0}, draws=draws, drift=0.1)
    both = sides()
    before = both.without.setup.deployment
    efficiencies = [Efficiency(overhead_s=s) for s in (0.1, 0.2, 0.3)]
    steps = ChangedServer(PROFILE, fit, before, before, efficiencies, CONFIG)
    for seed in range(5):
        drawn = steps.drawn(np.random.default_rng(seed)).seconds(DECODE)
        assert drawn == pytest.approx(fit.drawn(np.random.default_rng(seed)).seconds(DECODE))
    assert steps.model().seconds(DECODE) == pytest.approx(fit.model().seconds(DECODE))


def test_weights_of_a_quarter_of_the_bytes_take_a_quarter_of_the_reading() -> None:
    both = sides()
    before, after = both.without.setup.deployment, both.with_it.setup.deployment
    ideal = replace(IDEAL, overhead_s=1e-3)
    read_s = before.weight_bytes() / before.hardware.memory_bytes_per_s
    fit = StepTimeFit(coefficients={"constant": 1e-3 + read_s})
    server = ChangedServer(PROFILE, fit, before, after, [ideal], CONFIG)
    changed_s = (
        server.step_time("paged").model().seconds(BatchShape(1, 1, 1, (), decode_contexts=(1,)))
    )
    assert changed_s[0] == pytest.approx(1e-3 + read_s / 4, rel=0.02)
    assert (server.policy_config(), server.kv_bytes_per_token()) == (CONFIG, 8 * 2 * 2 * 64 * 4)
