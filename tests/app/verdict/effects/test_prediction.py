"""Effects that are predicted from a calibration and a formula."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from servetwin.app.serving.techniques import CannotRun
from servetwin.app.verdict.effects import sides as machine
from servetwin.app.verdict.effects.prediction import (
    ChangedServer,
    ChangedStepTime,
    fit_calibration,
    fitted_shapes,
    mean_accepted,
    predict_effect,
    with_measured_acceptance,
)
from servetwin.app.verdict.effects.sides import EffectLoads, sides_of
from servetwin.policies.batch import BatchShape
from servetwin.policies.step_record import StepRecord
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.step_times.acceptance import OrderedAcceptance
from servetwin.sim.step_times.profile import Profile, StepTimeFit
from servetwin.sim.step_times.roofline.efficiency import IDEAL, Efficiency
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.step_times.step_time import FEATURES, LinearStepTime
from servetwin.sim.techniques.registry import Toggles, find_technique
from servetwin.sim.techniques.technique import Experiment
from servetwin.workloads.errors import LoadTestError, PolicyError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.known_effects import CONFIG, HARDWARE, LOADS, OPTIONS, PROFILE, sides


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


def step(*drafts: tuple[int, int]) -> StepRecord:
    named = [(str(place), drafted, accepted) for place, (drafted, accepted) in enumerate(drafts)]
    return StepRecord(0, 0.0, 0.0, False, [], [], [], 0, 1, 0, named)


@pytest.mark.parametrize(
    "technique",
    [
        "self-speculation:drafts=3",
        "tree-speculation:draft=tiny,any_vocabulary=true,widths=3x1x1",
        "speculative:draft=tiny,any_vocabulary=true,drafts=3,least_confidence=0.2",
    ],
)
def test_the_law_accepts_as_many_as_the_log(technique: str) -> None:
    steps = [step((5, 2), (5, 1)), step((5, 0), (2, 2)), step()]
    found = with_measured_acceptance(sides(technique), steps).with_it.setup.acceptance
    assert isinstance(found, OrderedAcceptance)
    assert sum(found.reach) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(
    ("technique", "steps"),
    [
        ("self-speculation:alpha=0.5", [step((4, 4))]),
        ("self-speculation", [step()]),
        ("weight-int8", [step((4, 4))]),
    ],
)
def test_what_was_given_or_drafts_nothing_stays(technique: str, steps: list[Any]) -> None:
    before = sides(technique)
    assert with_measured_acceptance(before, steps) == before


def test_only_whole_passes_count() -> None:
    assert mean_accepted([step((4, 3), (1, 1)), step((4, 0))]) == 1.5
    assert mean_accepted([step()]) is None


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


BASE = sides().without.setup.deployment


def test_what_a_roofline_achieves_is_found_again() -> None:
    true = Efficiency(0.5, 0.95, 5e-4, 2.0, 0.0, 0.0, 0.0, attention=0.2)
    times = roofline_step_time(replace(BASE, efficiency=true))
    found = fit_calibration(BASE, times, fitted_shapes({}, 16))
    assert found.compute == pytest.approx(0.5, rel=0.02)
    assert found.memory == pytest.approx(0.95, rel=0.02)
    assert found.overhead_s == pytest.approx(5e-4, rel=0.1)
    assert found.attention == pytest.approx(0.2, rel=0.05)
    assert found.is_certain()


def test_batches_stay_within_what_was_measured() -> None:
    ranges = {"rows_from_0": 2.0, "rows_from_2": 62.0, "decode_context_tokens": 600.0}
    shapes = fitted_shapes(ranges, max_seqs=4)
    assert max(shape.rows for shape in shapes) <= 64
    assert max(shape.decode_context_tokens for shape in shapes) <= 600
    assert max(shape.decode_sequences for shape in shapes) == 4
    assert BatchShape(0, 0, 0, ((0, 64),)) in shapes
    assert any(shape.decode_sequences and shape.prefill_chunks for shape in shapes)


def test_both_sides_are_those_of_the_technique() -> None:
    technique = find_technique("dynamic-insertion:slots=4")
    found = sides_of(OPTIONS, technique, Toggles(), HARDWARE)
    without, with_it = found.without.options.policies, found.with_it.options.policies
    assert (without.batching, without.max_seqs) == ("static", 4)
    assert (with_it.batching, with_it.max_seqs) == ("insertion", 4)
    assert without.kv_tokens == with_it.kv_tokens == CONFIG.kv_tokens
    assert found.name == "dynamic-insertion:slots=4"
    assert not found.changes_step_times


def test_other_techniques_are_off_on_both_sides() -> None:
    others = Toggles.of([], ["paged-attention"])
    found = sides_of(OPTIONS, find_technique("continuous-batching"), others, HARDWARE)
    kinds = [side.options.policies for side in (found.without, found.with_it)]
    assert [config.kv for config in kinds] == ["contiguous", "contiguous"]
    assert [config.batching for config in kinds] == ["static", "continuous"]


def test_what_cannot_run_or_changes_nothing_is_refused() -> None:
    with pytest.raises(CannotRun, match="technique cascade: the bundled engine cannot run it"):
        sides_of(OPTIONS, find_technique("cascade:small=tiny"), Toggles(), HARDWARE)
    with pytest.raises(PolicyError, match="technique tensor-parallel: it changes nothing of this"):
        sides_of(OPTIONS, find_technique("tensor-parallel:ways=1"), Toggles(), HARDWARE)


@pytest.mark.parametrize(
    ("technique", "compute"), [("weight-int8", "fp32"), ("smooth-quant:scales=dynamic", "int8")]
)
def test_weight_only_formats_change_bytes_and_not_products(technique: str, compute: str) -> None:
    found = sides_of(OPTIONS, find_technique(technique), Toggles(), HARDWARE)
    before, after = (side.setup.deployment.decode for side in (found.without, found.with_it))
    assert (before.compute, after.compute) == ("fp32", compute)
    assert after.weight_bytes == 1
    assert found.with_it.options.computation.weight_format != OPTIONS.computation.weight_format


def test_a_trace_is_sent_one_after_the_other_and_all_at_once() -> None:
    trace = Trace(tuple(Request(str(i), 3.0 * i, 8 + i, 4) for i in range(20)), "twenty")
    loads = EffectLoads.of(trace)
    assert [r.parent_ids for r in loads.alone] == [(), *((str(n),) for n in range(11))]
    assert [r.delay_s for r in loads.alone] == [None] + 11 * [0.0]
    assert {r.arrival_s for r in loads.saturated} == {0.0}
    assert [r.prompt_tokens for r in loads.saturated] == list(range(8, 28))


def test_experiments_are_made_smaller_and_fit_the_context() -> None:
    loads = EffectLoads.of_experiment(Experiment(512, 4096, shared_tokens=512), 1, 400)
    assert len(loads.saturated) == 32
    prompts = [r.prompt_tokens for r in loads.saturated]
    assert min(prompts) > 128
    assert max(prompts) <= 128 + 200
    assert max(r.output_tokens for r in loads.saturated) <= 200
    assert {r.prefix_block_ids for r in loads.saturated} == {tuple(range(8))}
    again = EffectLoads.of_experiment(Experiment(512, 4096, shared_tokens=512), 1, 400)
    assert loads == again


def test_an_experiment_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(LoadTestError, match="several answers are wanted \\(4 in its experiment\\)"):
        EffectLoads.of_experiment(Experiment(samples=4), 1, 400)


def test_the_rates_that_were_measured_are_the_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_rates = pytest.importorskip("servetwin.engine.machine_rates")
    found = torch_rates.MachineRates({"fp32": 3e10, "bf16": 9e10}, 2e10, 3e-6)
    monkeypatch.setattr(torch_rates, "machine_rates", lambda threads: found)
    hardware = machine.measured_hardware(2)
    assert isinstance(hardware, Hardware)
    assert hardware.peak("bf16") == 9e10
    assert (hardware.memory_bytes_per_s, hardware.kernel_launch_s) == (2e10, 3e-6)
    assert hardware.compute_units == 2


def test_processes_that_share_a_model_have_the_link_that_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch_rates = pytest.importorskip("servetwin.engine.machine_rates")
    link_rates = pytest.importorskip("servetwin.engine.machine_rates")
    found = torch_rates.MachineRates({"fp32": 3e10, "bf16": 9e10}, 2e10, 3e-6)
    monkeypatch.setattr(torch_rates, "machine_rates", lambda threads: found)
    monkeypatch.setattr(link_rates, "link_rates", lambda: link_rates.LinkRates(4e-4, 1e9))
    hardware = machine.measured_hardware(1, ways=2)
    assert (hardware.link_latency_s, hardware.link_bytes_per_s) == (4e-4, 1e9)
    assert machine.measured_hardware(1).link_bytes_per_s == 2e10
