"""What followed the last tokens when they last stood together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.drafting.model_drafter import continuation
from servetwin.engine.drafting.proposals import NOTHING


@pytest.mark.parametrize(
    ("token_ids", "drafts", "longest", "expected"),
    [
        ([1, 2, 3, 9, 1, 2], 2, 3, [3, 9]),
        ([1, 2, 3, 1, 2, 4, 1, 2], 3, 2, [4, 1, 2]),  # the latest of two places
        ([5, 1, 2, 7, 2, 8, 1, 2], 2, 3, [7, 2]),  # two tokens before one
        ([1, 2, 3], 2, 3, [NOTHING] * 2),
        ([4, 4, 4], 2, 3, [4, NOTHING]),
        ([7], 2, 3, [NOTHING] * 2),
        ([256, 1, 65536, 3, 1], 1, 1, [65536]),  # no match within a token's bytes
    ],
)
def test_it_proposes_what_came_after_the_longest_match(
    token_ids: list[int], drafts: int, longest: int, expected: list[int]
) -> None:
    assert continuation(token_ids, drafts, longest) == expected


@given(
    st.lists(st.sampled_from([0, 1, 2, 256, 65536]), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_it_finds_what_a_search_by_hand_finds(
    token_ids: list[int], drafts: int, longest: int
) -> None:
    expected = [NOTHING] * drafts
    for length in range(min(longest, len(token_ids) - 1), 0, -1):
        last = token_ids[-length:]
        places = [p for p in range(len(token_ids) - length) if token_ids[p : p + length] == last]
        if places:
            after = token_ids[places[-1] + length :][:drafts]
            expected = after + [NOTHING] * (drafts - len(after))
            break
    assert continuation(token_ids, drafts, longest) == expected
