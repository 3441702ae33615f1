"""Context and generation of GPT-3 175B: passes, FLOPs, traffic, ideal times."""

import pytest

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.request import Request
from tests.support.formulas.phases import (
    Phases,
    activation_bytes,
    batch_where_kv_outweighs_weights,
    decode_traffic_ratio,
)

GPT_3 = find_model("gpt-3-175b")
A100 = find_hardware("a100-80gb")
NAMED_BYTES = 2 * 175e9
"""350 GB: the weights as the model's name has them."""
ONE, FOUR = Phases(GPT_3, 1, 1000, 250), Phases(GPT_3, 4, 1000, 250)


def test_its_weights() -> None:
    assert GPT_3.linear_params() == 12 * 96 * 12288**2 == 173_946_175_488
    assert GPT_3.linear_params() + GPT_3.head_params() == 174_563_733_504
    assert 2 * GPT_3.params() == pytest.approx(NAMED_BYTES, rel=3e-3)


def test_an_answer_of_four_tokens_takes_four_passes_and_leaves_seven_entries() -> None:
    short = Phases(GPT_3, 1, 4, 4)
    assert (1 + short.generation_passes, short.kv_entries) == (4, 7)


def test_and_so_it_is_simulated_pass_by_pass() -> None:
    """Four prompt tokens; four answers, the fourth is the end and is never fed back."""
    config = PolicyConfig(max_seqs=1, block_tokens=1, kv_tokens=16, max_model_len=16)
    second = LinearStepTime.of({"constant": 1.0})
    scheduler = build_scheduler(config)
    run = simulate([Request("A", 0.0, 4, 4)], scheduler, second, macro=False, keep_usage=True)
    steps = run.steps
    log = [tuple(row) for row in steps[["start_s", "prefill_chunks", "rows"]].to_numpy().tolist()]
    assert log == [(0, 1, 4), (1, 0, 1), (2, 0, 1), (3, 0, 1)]
    entries = steps["decode_context_tokens"].tolist()  # those that a decode attends to
    assert entries == [0, 5, 6, Phases(GPT_3, 1, 4, 4).kv_entries]
    assert run.requests[["first_token_s", "last_token_s"]].to_numpy().tolist() == [[1, 4]]


def test_activations_of_both_phases() -> None:
    assert activation_bytes(GPT_3, 1000) == 24_576_000
    assert activation_bytes(GPT_3, 1) == 24_576
    assert ONE.generation_passes == 249


@pytest.mark.parametrize("phases", [ONE, FOUR], ids=["B = 1", "B = 4"])
def test_flops_are_proportional_to_the_batch(phases: Phases) -> None:
    batch = phases.batch
    assert phases.context_flops == pytest.approx(3.47892e14 * batch, rel=2e-6)
    assert phases.generation_flops == pytest.approx(8.66252e13 * batch, rel=2e-6)
    assert phases.context_attention_flops == pytest.approx(2.36166e12 * batch, rel=2e-6)
    share = phases.context_attention_flops / phases.context_flops
    assert round(100 * share, 2) == 0.68


@pytest.mark.parametrize(("batch", "more"), [(8, "+9 %"), (32, "+41 %"), (64, "+84 %")])
def test_traffic_depends_on_the_batch_after_all(batch: int, more: str) -> None:
    ratio = decode_traffic_ratio(GPT_3, batch, 1000)
    assert f"{100 * (ratio - 1):+.0f} %" == more


@pytest.mark.parametrize(("context", "batch"), [(1000, 74), (1250, 59)])
def test_kv_weighs_as_much_as_the_weights(context: int, batch: int) -> None:
    assert round(batch_where_kv_outweighs_weights(GPT_3, context)) == batch
    exact = batch_where_kv_outweighs_weights(GPT_3, context)
    kept = GPT_3.resident_kv_elements(context)
    assert exact * kept == pytest.approx(GPT_3.linear_params())


def test_the_context_is_bound_by_compute_and_generation_by_memory() -> None:
    ridge = A100.ridge_flops_per_byte()
    assert round(ridge) == 153
    assert (ONE.context_intensity, ONE.generation_intensity) == (1000, 1)
    assert ONE.context_intensity > ridge
    assert Phases(GPT_3, 153, 1000, 250).generation_intensity < ridge
    assert Phases(GPT_3, 154, 1000, 250).generation_intensity > ridge


def test_ideal_times_on_eight_a100() -> None:
    assert round(ONE.context_s(A100, 8, NAMED_BYTES), 5) == 0.13938
    assert round(1e3 * ONE.generation_step_s(A100, 8, NAMED_BYTES), 3) == 21.457
    assert round(ONE.total_s(A100, 8, NAMED_BYTES), 4) == 5.4821


def test_twice_the_devices_take_half_the_time() -> None:
    four, eight = (ONE.total_s(A100, devices, NAMED_BYTES) for devices in (4, 8))
    assert four == 2 * eight
