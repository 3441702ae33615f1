"""Effects that are predicted from a calibration and a formula."""

import pytest

from servetwin.app.verdict.effects.prediction import predict_effect
from servetwin.sim.step_times.profile import Profile
from tests.support.known_effects import LOADS, PROFILE, sides


def with_fit(**changes: float) -> Profile:
    fit = PROFILE.layouts["paged"].model_copy(update=changes)
    return PROFILE.model_copy(update={"layouts": {"paged": fit}})


def test_policies_alone_leave_the_step_times() -> None:
    found = predict_effect(sides("chunked-prefill:token_budget=8"), PROFILE, LOADS, replications=2)
    assert found.efficiency is None
    assert found.ratios["tpot_alone"].value == pytest.approx(1.0)
    assert found.ratios["ttft_alone"].value > 1.5  # three steps for a prompt of 20 tokens


def test_drift_of_the_machine_cancels() -> None:
    calm = predict_effect(sides(), PROFILE, LOADS, replications=4)
    drifting = predict_effect(sides(), with_fit(drift=1.0), LOADS, replications=4)
    assert drifting.ratios == calm.ratios


def test_a_format_changes_steps_and_memory() -> None:
    found = predict_effect(sides(), PROFILE, LOADS, replications=2)
    assert found.efficiency is not None
    assert found.ratios["tpot_alone"].value < 0.8
    assert found.ratios["throughput"].value > 1.2
    weights, held = 80e6, 8192 * 8 * 32  # two blocks of 16 tokens for each of eight requests
    expected = (weights / 4 + held) / (weights + held)
    assert found.ratios["memory"].value == pytest.approx(expected, rel=0.01)


def test_any_layout_has_the_step_times_of_the_one_that_was_measured() -> None:
    found = predict_effect(sides("paged-attention"), contiguous(), LOADS, replications=2)
    assert found.ratios["tpot_alone"].value == pytest.approx(1.0)
    assert found.ratios["memory"].value < 1


def test_without_a_kv_cache_nothing_is_held_and_every_token_is_a_prompt() -> None:
    engine = {**PROFILE.engine, "kv_bytes": 0, "kv_tokens": 0}
    uncached = PROFILE.model_copy(update={"engine": engine})
    found = predict_effect(sides("kv-cache"), uncached, LOADS, replications=2)
    assert found.ratios["memory"].value == pytest.approx((80e6 + 8192 * 8 * 32) / 80e6, rel=0.01)
    assert found.ratios["tpot_saturated"].value < 1


def contiguous() -> Profile:
    layouts = {"contiguous": PROFILE.layouts["paged"]}
    policies = {**PROFILE.policies, "kv": "contiguous"}
    return PROFILE.model_copy(update={"layouts": layouts, "policies": policies})
