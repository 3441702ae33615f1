"""Sequence parallelism: the ring, its balance, and partial results of decodes."""

import pytest

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.hardware import Link
from servetwin.sim.step_times.roofline.operators import prefill_attention
from servetwin.sim.step_times.roofline.step_cost import StepCost
from servetwin.sim.techniques.parallel import SequenceParallel
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.errors import PolicyError
from tests.support.formulas.techniques import overlap_block_tokens
from tests.support.parallel_techniques import FREE, GQA, MHA, MIXTURE, ideal, rows_s


# Sequence parallelism
def test_attention_hides_the_ring_from_a_thousand_tokens_a_device() -> None:
    assert overlap_block_tokens(312e12, 300e9) == 1040


def exposed_s(ranks: int, block_tokens: int, zig_zag: bool, start: int = 0) -> float:
    """What a ring adds to the attention of a prompt with so many tokens on each device."""
    link = Link(0.0, 300e9)
    with_link, free = (
        StepCost(ideal(MHA, sequence=ranks, zig_zag=zig_zag, link=link)).attention.chunk_s(
            start, ranks * block_tokens
        )
        for link in (link, FREE)
    )
    return with_link - free


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_in_lock_step_the_busiest_device_hides_the_ring_a_little_sooner(ranks: int) -> None:
    bound = overlap_block_tokens(312e12, 300e9)
    own_half = ranks - 0.5  # whole blocks, and the half of its own that is causal
    hidden = int((ranks - 1) * bound / own_half) + 1
    assert hidden <= bound
    assert exposed_s(ranks, 1040, zig_zag=False) == 0
    assert exposed_s(ranks, hidden, zig_zag=False) == 0
    assert exposed_s(ranks, hidden - 2, zig_zag=False) > 0


def test_a_balanced_ring_has_half_the_attention_to_hide_behind() -> None:
    assert exposed_s(8, 1040, zig_zag=True) > 0
    assert exposed_s(8, 2 * 1040, zig_zag=True) == 0


@pytest.mark.parametrize(("ranks", "idle"), [(2, 1 / 3), (8, 7 / 15), (64, 63 / 127)])
def test_without_zig_zag_half_of_the_devices_work_is_waiting(ranks: int, idle: float) -> None:
    balanced_s, causal_s = (
        StepCost(ideal(MHA, sequence=ranks, zig_zag=zig_zag)).attention.chunk_s(0, ranks * 4096)
        for zig_zag in (True, False)
    )
    assert 1 - balanced_s / causal_s == pytest.approx(idle, abs=1e-3)


def test_a_later_chunk_sends_the_keys_before_it_too() -> None:
    sent_s = 3 * (30_000 + 4 * 50) / 4 * 2 * 4096 * 2 * 32 / 300e9
    slow = StepCost(ideal(MHA, sequence=4, link=Link(0.0, 300e9)))
    assert slow.attention.chunk_s(30_000, 4 * 50) == pytest.approx(sent_s)


def test_a_decode_reads_a_share_of_its_keys_and_sums_partial_results() -> None:
    link, sequences = Link(2e-6, 100e9), 8
    assert StepCost(ideal(sequence=4)).attention.context_s(sequences) == pytest.approx(
        StepCost(ideal()).attention.context_s(sequences) / 4
    )
    partials_bytes = sequences * 32 * (128 + 2) * 4
    free_s = rows_s(ideal(sequence=4), sequences)
    added_s = rows_s(ideal(sequence=4, link=link), sequences) - free_s
    assert added_s == pytest.approx(32 * link.all_reduce_s(partials_bytes, 4))


def test_of_a_prompt_only_its_last_row_sums_partial_results() -> None:
    link = Link(2e-6, 100e9)
    shared_s, free_s = (
        StepCost(ideal(sequence=4, link=link)).rows_s(4000, 1, True) for link in (link, FREE)
    )
    assert shared_s - free_s == pytest.approx(32 * link.all_reduce_s(32 * (128 + 2) * 4, 4))


def test_every_device_reads_the_keys_that_the_ring_brings() -> None:
    alone, shared = (
        prefill_attention(ideal(sequence=ways), GQA.layers[0], 1000, 500) for ways in (1, 4)
    )
    assert shared.moved_bytes == alone.moved_bytes == 131_072 * 1500
    assert shared.flops == alone.flops / 4


def test_every_device_has_all_weights() -> None:
    assert ideal(sequence=4).resident_weight_bytes() == 4 * 2 * GQA.params()
    assert ideal(MIXTURE, sequence=4).resident_weight_bytes() == 4 * 2 * MIXTURE.params()


def test_a_recurrent_model_has_no_keys_for_a_ring() -> None:
    with pytest.raises(PolicyError, match=r"sequence-parallel: mamba-2.8b has no softmax"):
        SequenceParallel().apply(Setup.of(ideal(find_model("mamba-2.8b"))))
