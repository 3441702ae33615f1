"""LoRA adapters: their size, their memory, and what they cost a step."""

from dataclasses import replace

import pytest

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.roofline.deployment import Adapters, Deployment
from servetwin.sim.step_times.roofline.step_cost import StepCost
from servetwin.sim.techniques.setup import Setup

LLAMA = Deployment(find_model("llama-3-8b"), find_hardware("h100"))
RANK_16 = Adapters(16, 4)


def test_an_adapter_has_the_size_that_peft_prints() -> None:
    """Rank 16 on all projections of Llama 3 8B: 41,943,040 trainable parameters."""
    assert RANK_16.stored_bytes(LLAMA.model) == 2 * 41_943_040


def test_slots_are_taken_from_the_keys_and_values() -> None:
    plain, placed = Setup.of(LLAMA), Setup.of(LLAMA).with_adapters(RANK_16)
    token_bytes = LLAMA.kv_bytes_per_token()
    lost = plain.scenario().policies.kv_tokens - placed.scenario().policies.kv_tokens
    assert lost == pytest.approx(4 * 83_886_080 / token_bytes, abs=16)
    policies = placed.scenario().policies
    assert (policies.adapter_slots, policies.adapter_tokens) == (4, 640)


def test_a_decode_reads_each_adapter_in_use_once() -> None:
    free = replace(LLAMA.efficiency, overhead_s=0.0, sequence_s=0.0)
    hardware = LLAMA.hardware.model_copy(update={"kernel_launch_s": 0.0})
    deployment = replace(LLAMA, efficiency=free, hardware=hardware)
    plain = StepCost(deployment)
    adapted = StepCost(replace(deployment, adapters=RANK_16))
    one_s = 83_886_080 / (hardware.memory_bytes_per_s * free.memory)
    for rows, used in ((1, 1), (3, 3), (4, 4), (9, 4)):
        more_s = adapted.rows_s(rows, rows, False) - plain.rows_s(rows, rows, False)
        assert more_s == pytest.approx(used * one_s, rel=0.02)
