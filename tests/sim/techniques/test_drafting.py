"""What drafting and verifying take of a step and of memory."""

from dataclasses import replace
from typing import Any

import pytest

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.acceptance import Chain
from servetwin.sim.step_times.roofline.operators import head_operator, linear_operators
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.techniques.drafting import SelfSpeculation, SpeculativeDecoding, TreeSpeculation
from tests.support.acceptance import mean_tokens_per_pass
from tests.support.decoding_techniques import (
    A100,
    BYTES_PER_S,
    DRAFT,
    TARGET,
    base,
    gain,
    ideal,
    law_of,
)
from tests.support.formulas.speculation import drafted_pass_s, period, plain_step_s


# Step times
def test_verifying_costs_a_chunk_and_its_bytes_are_free() -> None:
    """All rows need logits, a chunk's last one only: more FLOPs below the ridge, no more time."""
    deployment, start, rows = ideal(), 700, 5
    step_time = roofline_step_time(deployment)
    chunk_s = float(step_time.seconds(BatchShape(0, 0, 0, ((start, rows),)))[0])
    assert drafted_pass_s(deployment, rows, 1, start) == pytest.approx(chunk_s, rel=1e-9)
    assert (
        head_operator(deployment, 5, False).flops == 5 * head_operator(deployment, 1, False).flops
    )
    head_bytes = [head_operator(deployment, n, False).moved_bytes for n in (1, 5)]
    assert head_bytes == [2 * 32000 * 4096] * 2, "n rows in, n laws over the vocabulary out"
    once, more = (linear_operators(deployment, n, False)[0] for n in (1, 5))
    assert (more.flops, more.moved_bytes) == (5 * once.flops, once.moved_bytes)


def test_a_pass_is_its_bytes_over_the_bandwidth() -> None:
    """Below the ridge: the target's weights once, the draft's four times, and the keys of both."""
    with_it = SpeculativeDecoding(drafts=4).apply(base())
    start, kv, draft_kv = 800, 2 * 32 * 4096 * 2, 2 * 2 * 768 * 2
    target = 2 * (TARGET.linear_params() + 32000 * 4096) + kv * (start + 5 + 5)
    drafting = 4 * 2 * (DRAFT.linear_params() + 32000 * 768)
    drafting += draft_kv * sum(start + 1 + step + 1 for step in range(4))
    expected_s = (target + drafting) / BYTES_PER_S
    assert drafted_pass_s(with_it.deployment, 5, 1, start) == pytest.approx(expected_s, rel=1e-9)


@pytest.mark.parametrize(
    ("placement", "pipelined"), [("device", False), ("other", False), ("overlapped", True)]
)
@pytest.mark.parametrize("draft", ["llama-68m", "llama-2-7b"])
def test_drafting_on_a_cpu_takes_its_time_before_or_beside(
    placement: Any, pipelined: bool, draft: str
) -> None:
    """The larger draft on a processor outlasts the verification."""
    device = None if placement == "device" else "epyc-cpu"
    technique = SpeculativeDecoding(draft=draft, placement=placement, draft_hardware=device)
    deployment = technique.apply(base()).deployment
    alone = replace(ideal(find_model(draft)), hardware=find_hardware(device) if device else A100)
    draft_s = sum(plain_step_s(alone, 3, 300 + step) for step in range(4))
    verify_s = drafted_pass_s(ideal(), 5, 3, 300)
    assert (draft_s > verify_s) == (draft == "llama-2-7b")
    assert drafted_pass_s(deployment, 5, 3, 300) == pytest.approx(
        period(draft_s, verify_s, pipelined), rel=1e-9
    )


def test_a_tree_is_drafted_level_by_level() -> None:
    technique = TreeSpeculation(widths=(3, 2, 1, 1), draft="tinyllama-1.1b")
    deployment = technique.apply(base()).deployment
    assert deployment.drafting is not None
    assert deployment.drafting.step_rows == (1, 3, 6, 6)
    chain = TreeSpeculation(widths=(1, 1, 1)).apply(base())
    assert chain.deployment == SpeculativeDecoding(drafts=3).apply(base()).deployment
    assert mean_tokens_per_pass(law_of(chain)) == pytest.approx(mean_tokens_per_pass(Chain(0.6, 3)))


@pytest.mark.parametrize("window", [256, 100_000])
def test_a_short_context_bounds_what_a_draft_reads_and_not_what_verifying_does(window: int) -> None:
    technique = SelfSpeculation(layer_share=1, context_tokens=window, drafts=3)
    deployment, start, sequences = technique.apply(base()).deployment, 3000, 4
    drafting_s = drafted_pass_s(deployment, 4, sequences, start) - drafted_pass_s(
        ideal(), 4, sequences, start
    )
    weights = 2 * (TARGET.linear_params() + 32000 * 4096)
    seen = sum(min(start + 1 + step, window) + 1 for step in range(3))
    expected = 3 * weights + sequences * seen * 524_288
    assert drafting_s == pytest.approx(expected / BYTES_PER_S, rel=1e-9)


def test_a_short_context_pays_where_keys_outweigh_weights() -> None:
    technique = SelfSpeculation(layer_share=1, context_tokens=512, alpha=0.9)
    few, many = (gain(technique, base(), sequences, 4000) for sequences in (1, 64))
    assert few < 1 < many


def test_a_part_of_the_layers_drafts_in_its_share_of_their_time() -> None:
    deployment = SelfSpeculation(layer_share=0.25, drafts=1).apply(base()).deployment
    drafting_s = drafted_pass_s(deployment, 2, 1, 400) - drafted_pass_s(ideal(), 2, 1, 400)
    layers = 0.25 * (2 * TARGET.linear_params() + 524_288 * (401 + 1))
    assert drafting_s == pytest.approx((layers + 2 * 32000 * 4096) / BYTES_PER_S, rel=1e-9)


def test_a_draft_model_takes_memory_and_a_part_of_the_target_none() -> None:
    plain = base().deployment
    own, far, part = (
        technique.apply(base()).deployment
        for technique in (
            SpeculativeDecoding(),
            SpeculativeDecoding(placement="other"),
            SelfSpeculation(),
        )
    )
    assert own.weight_bytes() - plain.weight_bytes() == 2 * DRAFT.params()
    assert own.kv_bytes_per_token() - plain.kv_bytes_per_token() == 2 * 2 * 768 * 2
    for other in (far, part):
        assert other.weight_bytes() == plain.weight_bytes()
        assert other.kv_bytes_per_token() == plain.kv_bytes_per_token()


def test_the_draft_model_computes_the_prompt_too() -> None:
    plain_s, own_s, far_s, part_s = (
        float(roofline_step_time(deployment).seconds(BatchShape(0, 0, 0, ((0, 1000),)))[0])
        for deployment in (
            ideal(),
            SpeculativeDecoding().apply(base()).deployment,
            SpeculativeDecoding(placement="other").apply(base()).deployment,
            SelfSpeculation().apply(base()).deployment,
        )
    )
    alone_s = float(roofline_step_time(ideal(DRAFT)).seconds(BatchShape(0, 0, 0, ((0, 1000),)))[0])
    assert own_s == pytest.approx(plain_s + alone_s)
    assert far_s == part_s == plain_s
