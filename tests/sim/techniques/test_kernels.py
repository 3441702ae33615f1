"""Techniques of kernels: traffic, occupancy, launches, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.operators import prefill_attention
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.techniques.kernels import (
    AsynchronousSoftmax,
    FlashAttention,
    FlashDecoding,
    KernelFusion,
)
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.trace import Trace
from tests.support.checked import request
from tests.support.formulas.techniques import (
    flash_traffic_elements,
    score_elements,
    split_gain_limit,
    standard_traffic_elements,
)
from tests.support.kernel_techniques import (
    BYTES_PER_S,
    KV_BYTES,
    LAUNCH_S,
    MHA,
    TECHNIQUES,
    attention_s,
    ideal,
)


def step_s(deployment: Deployment, sequences: int, context_tokens: int) -> float:
    """A step of equal decodes."""
    context = sequences * context_tokens
    contexts = (context_tokens,) * sequences
    shape = BatchShape(sequences, context, sequences, decode_contexts=contexts)
    return float(roofline_step_time(deployment).seconds(shape)[0])


def pair(technique: Technique, base: Setup) -> tuple[Setup, Setup]:
    """(without, with)."""
    without = technique.off(base)
    return without, technique.apply(without)


def simulated(setup: Setup, prompt: int = 1000, output: int = 40) -> Run:
    """One request at a time."""
    requests = (request(str(i), 100.0 * i, prompt, output) for i in range(2))
    return run_once(Trace(tuple(requests), "two"), setup.scenario())


def test_flash_attention_keeps_two_numbers_a_query_instead_of_all_scores() -> None:
    assert score_elements(4096, flash=False) == 16_777_216
    assert score_elements(4096, flash=True) == 2 * 4096


@given(st.integers(1, 10**5), st.sampled_from([64, 128]), st.integers(2**14, 2**17))
def test_flash_attention_moves_less_where_tiles_hold_more_than_a_head(
    tokens: int, head_dim: int, sram_elements: int
) -> None:
    standard = standard_traffic_elements(tokens, head_dim)
    flash = flash_traffic_elements(tokens, head_dim, sram_elements)
    assert flash / standard < head_dim**2 / sram_elements
    twice = flash_traffic_elements(2 * tokens, head_dim, sram_elements)
    assert twice == pytest.approx(4 * flash)


def test_flash_attention_saves_traffic_and_no_flops() -> None:
    tokens, group = 2048, MHA.layers[0]
    without, with_it = (
        prefill_attention(ideal(MHA, flash_attention=flash), group, 0, tokens)
        for flash in (False, True)
    )
    assert without.flops == with_it.flops == 32 * 4 * 4096 * tokens * (tokens + 1) / 2
    scores_bytes = 4 * 2 * 32 * tokens**2 * 32  # out and in twice, 2 bytes, heads, layers
    assert without.moved_bytes - with_it.moved_bytes == scores_bytes


def test_flash_attention_shortens_the_first_token_and_leaves_the_others() -> None:
    without, with_it = (simulated(s) for s in pair(FlashAttention(), Setup.of(ideal(MHA))))
    saved_s = without.requests["ttft_s"] - with_it.requests["ttft_s"]
    assert (saved_s > 0).all()
    assert saved_s.max() <= 4 * 2 * 32 * 1000**2 * 32 / BYTES_PER_S
    assert list(without.requests["tpot_s"]) == pytest.approx(list(with_it.requests["tpot_s"]))


def test_flash_decoding_gains_at_most_thirteen_and_a_half_there() -> None:
    assert split_gain_limit(108, 1, 8) == 13.5
    assert split_gain_limit(108, 64, 8) == 1
    heads, split, no_reduction = (
        attention_s(ideal(occupancy=mode, synchronised=synchronised), 1, 8192)
        for mode, synchronised in (("heads", True), ("split", True), ("split", False))
    )
    assert heads / no_reduction == pytest.approx(13.5)
    assert heads / split < 13.5


def test_flash_decoding_leaves_the_first_token_and_speeds_up_the_others() -> None:
    without, with_it = (simulated(s, 4000) for s in pair(FlashDecoding(), Setup.of(ideal())))
    assert list(without.requests["ttft_s"]) == list(with_it.requests["ttft_s"])
    assert (with_it.requests["tpot_s"] < without.requests["tpot_s"]).all()


def test_flash_decoding_gains_nothing_where_the_heads_fill_the_device() -> None:
    full, heads, split = (
        attention_s(ideal(occupancy=mode), 14, 4096) for mode in ("full", "heads", "split")
    )
    assert heads == full
    assert split > full


@given(st.integers(1, 40), st.integers(1, 20_000), st.sampled_from([64, 256, 1024]))
def test_splitting_never_gains_more_than_its_bound(
    sequences: int, context_tokens: int, split_tokens: int
) -> None:
    without, with_it = pair(FlashDecoding(split_tokens=split_tokens), Setup.of(ideal()))
    gain = attention_s(without.deployment, sequences, context_tokens) / attention_s(
        with_it.deployment, sequences, context_tokens
    )
    assert gain <= split_gain_limit(108, sequences, 8) * (1 + 1e-9)


def test_without_synchronised_softmax_decode_attention_takes_a_fifth_less() -> None:
    without, with_it = pair(AsynchronousSoftmax(), Setup.of(ideal(occupancy="heads")))
    ratio = attention_s(with_it.deployment, 2, 3000) / attention_s(without.deployment, 2, 3000)
    assert ratio == pytest.approx(0.8)


def test_without_synchronised_softmax_a_split_needs_no_reduction() -> None:
    technique = AsynchronousSoftmax(share=0)
    without, with_it = pair(technique, Setup.of(ideal(occupancy="split")))
    saved_s = attention_s(without.deployment, 1, 8192) - attention_s(with_it.deployment, 1, 8192)
    assert saved_s == pytest.approx(32 * (2 * 32 * 32 * 130 * 4 / BYTES_PER_S + LAUNCH_S))
    read_s = KV_BYTES * 8192 / BYTES_PER_S
    assert attention_s(with_it.deployment, 1, 8192) == pytest.approx(read_s)


def test_a_share_of_all_time_is_refused() -> None:
    with pytest.raises(ValidationError, match="share"):
        AsynchronousSoftmax(share=1)


@pytest.mark.parametrize("sequences", [1, 16])
def test_fusion_saves_launches_and_the_traffic_between_products(sequences: int) -> None:
    without, with_it = pair(KernelFusion(launches_per_layer=8), Setup.of(ideal()))
    saved_s = step_s(without.deployment, sequences, 500) - step_s(
        with_it.deployment, sequences, 500
    )
    launches_s = 32 * 8 * LAUNCH_S
    between_s = 32 * sequences * (10 * 4096 + 4 * 14336) * 2 / BYTES_PER_S
    assert saved_s == pytest.approx(launches_s + between_s, rel=1e-9)


def test_reading_by_block_tables_slows_attention_alone() -> None:
    plain_s = attention_s(ideal(), 8, 2000)
    for penalty in (1.20, 1.26):
        slowed = ideal(attention_slowdown=penalty)
        assert attention_s(slowed, 8, 2000) == pytest.approx(penalty * plain_s)
        slower_by = step_s(slowed, 8, 2000) / step_s(ideal(), 8, 2000)
        assert 1 < slower_by < 1.05
        alike, without = simulated(Setup.of(slowed)), simulated(Setup.of(ideal()))
        assert list(alike.requests["ttft_s"]) == list(without.requests["ttft_s"])
        assert (alike.requests["tpot_s"] > without.requests["tpot_s"]).all()


@pytest.mark.parametrize("technique", TECHNIQUES, ids=lambda technique: str(technique.name))
def test_kernels_change_no_token_and_slow_nothing_down(technique: Technique) -> None:
    without, with_it = (simulated(s, 3000) for s in pair(technique, Setup.of(ideal())))
    assert list(without.requests["output_tokens"]) == list(with_it.requests["output_tokens"])
    assert (with_it.requests["e2e_s"] < without.requests["e2e_s"]).all()
    assert (with_it.requests["ttft_s"] <= without.requests["ttft_s"]).all()


@pytest.mark.parametrize("technique", TECHNIQUES[:3], ids=lambda technique: str(technique.name))
def test_a_model_without_softmax_is_refused(technique: Technique) -> None:
    mamba = Setup.of(ideal(find_model("mamba-2.8b")))
    with pytest.raises(PolicyError, match=r"mamba-2.8b has no softmax attention"):
        technique.apply(mamba)
