"""The memory of the largest step, beside what the bundled engine allocates for it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.shipped import shipped_models
from servetwin.sim.step_times.roofline.memory import largest_step, memory_sizes
from servetwin.sim.step_times.roofline.step_memory import (
    DRAWN_LOGIT_BYTES,
    LargestStep,
    StepBuffers,
)
from tests.support.step_peaks import measured

EAGER = StepBuffers(4.0, fused=False)
CHUNKED = PolicyConfig(batching="chunked", max_seqs=8, max_model_len=1024, kv_tokens=4096)
REGIONS = replace(CHUNKED, kv="contiguous", reservation="exact")
LLAMA = find_model("llama-2-7b")


@pytest.mark.parametrize("kv", ["contiguous", "paged"])
@pytest.mark.parametrize("token_budget", [128, 512])
def test_the_peak_of_the_bundled_engine_is_foretold(kv: str, token_budget: int) -> None:
    """Weights, KV and step, within 5 %; so is the step alone, a seventh of the whole at most."""
    config = REGIONS.changed(kv=kv, token_budget=token_budget)
    found = measured("small", config, [1016, 1016, 200, 50], 8)
    assert found.most_rows == token_budget
    model, step = find_model("small"), replace(largest_step(config), draws=False)
    sizes = memory_sizes(model, 4096, 4.0, 4.0, EAGER.peak(model, step))
    kept = sizes.weight_bytes + sizes.sequence_bytes
    assert kept + sizes.step_bytes == pytest.approx(found.peak_bytes, rel=0.05)
    assert sizes.step_bytes == pytest.approx(found.peak_bytes - kept, rel=0.05)


def test_logits_that_are_drawn_from_are_foretold() -> None:
    """Eight decodes: the logits outweigh all activations."""
    config = replace(CHUNKED, max_model_len=16, token_budget=16, kv_tokens=128)
    found = measured("small", config, [2] * 8, 4, temperature=1.0)
    model = find_model("small")
    sizes = memory_sizes(model, 128, 4.0, 4.0, EAGER.peak(model, largest_step(config)))
    kept = sizes.weight_bytes + sizes.sequence_bytes
    assert sizes.step_bytes == pytest.approx(found.peak_bytes - kept, rel=0.05)
    assert sizes.step_bytes == 8 * 16_384 * DRAWN_LOGIT_BYTES


def test_flash_attention_keeps_nothing_that_grows_with_pairs_of_tokens() -> None:
    """Whole prompts on the engine: twice the prompt is twice the peak, or four times the scores.

    Torch's kernel without tiles has masks of a byte beside scores and their softmax.
    """

    def beside_kept(tokens: int, *, flash_attention: bool) -> float:
        config = replace(
            CHUNKED, max_model_len=tokens + 8, token_budget=tokens, kv_tokens=tokens + 16,
            batching="continuous",
        )  # fmt: skip
        found = measured("tiny", config, [tokens], 1, flash_attention=flash_attention)
        sizes = memory_sizes(find_model("tiny"), config.kv_tokens, 4.0, 4.0)
        return found.peak_bytes - sizes.weight_bytes - sizes.sequence_bytes

    flash = [beside_kept(tokens, flash_attention=True) for tokens in (512, 1024)]
    assert flash[1] / flash[0] == pytest.approx(2.0, rel=0.05)
    plain = [beside_kept(tokens, flash_attention=False) for tokens in (512, 1024)]
    growth = plain[1] - 2 * plain[0]  # what is linear cancels
    scores = 4 * (1024**2 - 2 * 512**2) * 4  # heads x pairs x bytes
    assert 2.0 * scores < growth < 2.6 * scores


def test_without_flash_attention_scores_of_all_heads_are_kept() -> None:
    step = LargestStep(2048, 1, 4096, draws=False)
    plain = replace(StepBuffers(2.0), flash_attention=False).peak(LLAMA, step)
    assert sum(plain.scores) == 2 * 32 * 2048 * 4096 * 2
    assert sum(StepBuffers(2.0).peak(LLAMA, step).scores) == 0


def test_fused_kernels_keep_an_input_and_an_output_beside_the_residual() -> None:
    """The widest pair is that of the activation: 2 f in, f out."""
    step = LargestStep(2048, 1, 4096, draws=False)
    fused = StepBuffers(2.0).peak(LLAMA, step).allocated_bytes
    assert fused == 2048 * (4096 + 3 * 11_008) * 2
    eager = replace(StepBuffers(2.0), fused=False).peak(LLAMA, step).allocated_bytes
    rows, copied = 10 * 4096, 4096 * 2 * 4096  # of attention, and its keys and values
    assert eager == 2 * (2048 * rows + copied + 2 * 128 * (2048 + 4096) + 2048 * 4096)


@given(
    st.sampled_from(shipped_models()),
    st.booleans(),
    st.booleans(),
    st.integers(1, 10**5),
    st.integers(1, 10**5),
    st.integers(1, 10**6),
)
def test_more_rows_logits_or_context_never_need_less(
    name: str, fused: bool, flash: bool, rows: int, sampled: int, context: int
) -> None:
    model, buffers = find_model(name), StepBuffers(2.0, fused, flash)
    sizes = [
        buffers.peak(model, LargestStep(r, s, c)).allocated_bytes
        for r, s, c in (
            (rows, sampled, context),
            (rows + 1, sampled, context),
            (rows, sampled + 1, context),
            (rows, sampled, context + 1),
        )
    ]
    assert 0 < sizes[0] <= min(sizes[1:])
    peaks = [
        StepBuffers(2.0, f, flash).peak(model, LargestStep(rows, 1, context)) for f in (True, False)
    ]
    assert peaks[0].allocated_bytes <= peaks[1].allocated_bytes


def test_segments_of_the_allocator_are_what_fragments() -> None:
    """A tensor of 64 KiB takes 2 MiB, one of 5 MiB takes 20, one of 11 MiB takes 12."""
    model = LLAMA.model_copy(update={"vocabulary": 2048})
    for rows, taken_mib in ((8, 2), (640, 20), (1408, 12)):
        peak = StepBuffers(4.0).peak(model, LargestStep(0, rows, 1, draws=False))
        assert peak.allocated_bytes == rows * 2048 * 4
        assert peak.allocated_bytes + peak.fragmentation_bytes == taken_mib * 2**20
