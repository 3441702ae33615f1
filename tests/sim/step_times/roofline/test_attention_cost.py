"""Seconds of decode attention: occupancy, splits and their reduction."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.step_times.roofline.parallel import Parallel
from servetwin.sim.step_times.roofline.step_cost import StepCost
from tests.support.kernel_techniques import (
    A100,
    BYTES_PER_S,
    GQA,
    KV_BYTES,
    LAUNCH_S,
    MHA,
    attention_s,
    ideal,
)


@pytest.mark.parametrize(
    ("model", "mode", "sequences", "context_tokens", "busy"),
    [
        (GQA, "heads", 1, 8192, "0.074"),
        (MHA, "heads", 1, 8192, "0.296"),
        (GQA, "split", 1, 8192, "1.000"),
        (GQA, "heads", 14, 8192, "1.000"),
        (GQA, "split", 1, 257, "0.148"),
        (GQA, "split", 1, 256, "0.074"),
        (GQA, "full", 1, 16, "1.000"),
    ],
)
def test_how_much_of_an_a100_a_decode_fills(
    model: ModelShape, mode: str, sequences: int, context_tokens: int, busy: str
) -> None:
    cost = StepCost(ideal(model, occupancy=mode))
    mixer = model.layers[0].mixer
    assert f"{cost.attention.occupancy(mixer, sequences, context_tokens):.3f}" == busy


@pytest.mark.parametrize(("sequences", "context_tokens"), [(1, 8192), (1, 300), (3, 2000)])
def test_split_attention_is_its_bytes_over_what_is_busy_and_a_reduction(
    sequences: int, context_tokens: int
) -> None:
    splits = -(-context_tokens // 256)
    busy = min(1.0, sequences * 8 * splits / 108)
    read_s = KV_BYTES * sequences * context_tokens / (BYTES_PER_S * busy)
    reduce_s = 32 * (2 * splits * sequences * 32 * (128 + 2) * 4 / BYTES_PER_S + LAUNCH_S)
    expected_s = read_s + reduce_s
    assert attention_s(ideal(occupancy="split"), sequences, context_tokens) == pytest.approx(
        expected_s, rel=1e-9
    )


def test_sharing_heads_between_devices_leaves_a_lone_decode_to_as_few_sms_each() -> None:
    for mode, gain in (("heads", 1), ("split", 8)):
        alone = ideal(occupancy=mode, synchronised=False)
        shared = replace(alone, parallel=Parallel(tensor=8))
        shorter = attention_s(alone, 1, 65_536) / attention_s(shared, 1, 65_536)
        assert shorter == pytest.approx(gain)


@given(
    st.sampled_from(["full", "heads", "split"]),
    st.integers(1, 40),
    st.integers(1, 20_000),
    st.integers(1, 300),
    st.integers(1, 300),
)
def test_more_sms_at_the_same_bandwidth_never_lower_the_time(
    mode: str, sequences: int, context_tokens: int, compute_units: int, more: int
) -> None:
    few, many = (
        attention_s(
            replace(
                ideal(occupancy=mode), hardware=A100.model_copy(update={"compute_units": units})
            ),
            sequences,
            context_tokens,
        )
        for units in (compute_units, compute_units + more)
    )
    assert few <= many
