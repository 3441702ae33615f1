"""What a mask leaves of a context, counted by hand."""

import numpy as np
import pytest

from servetwin.sim.catalogue.layers import Attention
from servetwin.sim.step_times.roofline.operators import full_pairs, seen_keys, seen_pairs, visible
from tests.support.small_models import attention


def seen_by_hand(mixer: Attention, position: int) -> set[int]:
    """The keys that the query at a position sees: window, gaps and sinks, one by one."""
    window = mixer.window_tokens or position + 1
    near = {p for p in range(position + 1) if position - p < window}
    spaced = {p for p in near if (position - p) % mixer.dilation == 0}
    return spaced | set(range(min(mixer.sink_tokens, position + 1)))


MASKS = [
    attention(window_tokens=window, sink_tokens=sinks, dilation=dilation)
    for window, sinks, dilation in [(None, 0, 1), (5, 0, 1), (5, 3, 1), (1, 0, 1), (64, 4, 1),
                                    (None, 0, 3), (9, 0, 2), (10, 0, 4)]
]  # fmt: skip


@pytest.mark.parametrize("mixer", MASKS, ids=str)
def test_masks_are_counted_as_by_hand(mixer: Attention) -> None:
    contexts = np.arange(1, 90)
    by_hand = [len(seen_by_hand(mixer, length - 1)) for length in contexts.tolist()]
    assert visible(mixer, contexts).tolist() == by_hand
    for start, rows in [(0, 1), (0, 30), (7, 5), (40, 49), (88, 1)]:
        seen = [seen_by_hand(mixer, p) for p in range(start, start + rows)]
        assert seen_pairs(mixer, start, rows) == sum(map(len, seen))
        if mixer.dilation == 1 or rows == 1:
            assert seen_keys(mixer, start, rows) == len(set.union(*seen))


def test_a_prompt_is_attended_to_in_full_whatever_its_budget() -> None:
    budgeted = attention(budget_tokens=8)
    assert seen_pairs(budgeted, 0, 100) == full_pairs(0, 100) == 5050
    assert visible(budgeted, np.array([3, 8, 100])).tolist() == [3, 8, 8]
