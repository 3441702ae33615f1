"""Sinks stay, and each new position takes the place of the one that leaves the window."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.kv.forgetting import KeptTokens


def test_positions_and_their_slots() -> None:
    kept = KeptTokens(window=3, sinks=2)
    assert kept.total == 5
    assert kept.positions(1).tolist() == [0]
    assert kept.positions(4).tolist() == [0, 1, 2, 3]
    assert kept.positions(9).tolist() == [0, 1, 6, 7, 8]
    blocks = [7, 3]
    assert kept.slots(blocks, kept.positions(5), 4).tolist() == [28, 29, 30, 31, 12]
    assert kept.slots(blocks, kept.positions(9), 4).tolist() == [28, 29, 31, 12, 30]


@given(st.integers(1, 9), st.integers(0, 5), st.integers(0, 60), st.integers(1, 5))
def test_no_two_kept_positions_share_a_slot(
    window: int, sinks: int, computed: int, block_tokens: int
) -> None:
    kept = KeptTokens(window, sinks)
    positions = kept.positions(computed)
    assert len(positions) == min(computed, kept.total)
    blocks = list(range(-(-len(positions) // block_tokens)))
    slots = kept.slots(blocks, positions, block_tokens)
    assert sorted(slots) == list(range(len(positions)))
    assert np.array_equal(positions, np.unique(positions))
    assert [kept.slot(blocks, int(each), block_tokens) for each in positions] == slots.tolist()
