"""What a memory of windows, shares and states keeps of so many positions."""

from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.windowed import Residency
from servetwin.sim.catalogue.layers import Attention, Dense
from servetwin.sim.catalogue.model import LayerGroup, ModelShape


def kept(config: PolicyConfig, positions: int) -> int:
    """Full-token equivalents that are kept of so many positions, rounded up."""
    return Residency(config).pieces(positions, 1)


@pytest.mark.parametrize(
    ("window", "share", "state", "positions", "expected"),
    [
        (None, 1.0, 0, 32768, 32768),  # every layer global
        (1024, 0.0, 0, 32768, 32768),
        (1024, 5 / 6, 0, 32768, 6315),  # 1 global in 6: 32768 / 6 + 1024 * 5 / 6 = 6314.67
        (1024, 5 / 6, 0, 1024, 1024),
        (1024, 5 / 6, 0, 1024 + 6 * 777, 1024 + 777),  # exact: no dust of 5 / 6 rounds up
        (1024, 0.8333333, 0, 1024 + 6 * 777, 1024 + 777),
        (4096, 1.0, 0, 32768, 4096),
        (2048, 1.0, 0, 32768, 2048),
        (4100, 1.0, 0, 4099, 4099),  # StreamingLLM: 4 sinks and a window of 4096
        (4100, 1.0, 0, 4101, 4100),
        (4100, 1.0, 0, 4_000_000, 4100),
        (1, 1.0, 0, 1, 1),  # a state alone: a unit is a state
        (1, 1.0, 0, 1_000_000, 1),
        (None, 1.0, 300, 500, 800),  # recurrent layers beside global ones
        (10, 0.5, 7, 21, 23),  # 7 + 21 / 2 + 10 / 2 = 22.5
    ],
)
def test_what_is_kept(
    window: int | None, share: float, state: int, positions: int, expected: int
) -> None:
    config = PolicyConfig(
        kv="windowed", kv_window_tokens=window, kv_window_share=share, kv_state_tokens=state
    )
    assert kept(config, positions) == expected


def test_a_hybrid_of_one_global_layer_in_six_keeps_a_fifth() -> None:
    config = PolicyConfig(kv="windowed", kv_window_tokens=1024, kv_window_share=5 / 6)
    assert kept(config, 32768) / 32768 == pytest.approx(0.19271, abs=1 / 32768)


@given(
    layers=st.tuples(st.integers(0, 60), st.integers(0, 60)).filter(any),
    window=st.integers(1, 5000),
    state=st.integers(0, 500),
    positions=st.lists(st.integers(0, 100_000), min_size=1),
    block=st.integers(1, 64),
)
def test_what_is_kept_is_the_sum_over_the_layers_to_the_last_part_of_a_token(
    layers: tuple[int, int], window: int, state: int, positions: list[int], block: int
) -> None:
    windowed, full = layers
    share = windowed / (windowed + full)
    residency = Residency(
        PolicyConfig(
            kv="windowed", kv_window_tokens=window, kv_window_share=share, kv_state_tokens=state
        )
    )
    sums = [state + Fraction(windowed * min(n, window) + full * n, sum(layers)) for n in positions]
    expected = [ceil(tokens / block) for tokens in sums]
    assert [residency.pieces(n, block) for n in positions] == expected
    assert residency.pieces(np.array(positions), block).tolist() == expected


@given(
    windowed=st.integers(1, 40),
    full=st.integers(1, 40),
    window=st.integers(1, 4000),
    sinks=st.integers(0, 8),
    positions=st.integers(1, 20_000),
)
def test_what_is_kept_is_what_the_shape_of_a_model_keeps(
    windowed: int, full: int, window: int, sinks: int, positions: int
) -> None:
    everything = Attention(heads=8, kv_heads=2, head_dim=64)
    local = everything.model_copy(update={"window_tokens": window, "sink_tokens": sinks})
    groups = tuple(
        LayerGroup(count=count, mixer=mixer, ffn=Dense(width=64))
        for count, mixer in ((windowed, local), (full, everything))
    )
    shape = ModelShape(name="hybrid", width=64, vocabulary=100, layers=groups, source="made up")
    config = PolicyConfig(
        kv="windowed",
        kv_window_tokens=window + sinks,
        kv_window_share=windowed / (windowed + full),
    )
    expected = shape.resident_kv_elements(positions) / shape.kv_elements_per_token()
    assert expected - 1e-6 <= kept(config, positions) < expected + 1
