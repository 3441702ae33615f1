"""Marks of the tokens that a sequence has seen."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.sampling.token_state import SeenTokens


def marks(seen: SeenTokens, drafted: Iterable[int] = ()) -> dict[int, int]:
    ids, found = seen.marks(drafted)
    assert len(set(ids.tolist())) == len(ids)
    return dict(zip(ids.tolist(), found.tolist(), strict=True))


def test_marks_go_on_where_the_last_step_ended() -> None:
    tokens = [1, 2, 2, 5]
    seen = SeenTokens(tokens, 4)
    assert marks(seen) == {1: 1, 2: 1, 5: 1}
    tokens += [2, 3]
    assert marks(seen) == {1: 1, 2: 3, 5: 1, 3: 2}
    tokens.append(3)
    for _ in range(2):
        assert marks(seen) == {1: 1, 2: 3, 5: 1, 3: 4}


def test_drafted_tokens_leave_no_mark() -> None:
    seen = SeenTokens([1, 2], 2)
    assert marks(seen, (2, 7, 7)) == {1: 1, 2: 3, 7: 4}
    assert marks(seen) == {1: 1, 2: 1}


@given(st.lists(st.integers(0, 40), max_size=60), st.lists(st.integers(0, 40), max_size=60))
def test_marks_count_what_was_generated(prompt: list[int], output: list[int]) -> None:
    tokens = list(prompt)
    seen = SeenTokens(tokens, len(prompt))
    for place, token in enumerate(output):
        tokens.append(token)
        if place % 3 == 0:
            marks(seen)
    assert marks(seen) == {
        token: 2 * output.count(token) + (token in prompt) for token in {*prompt, *output}
    }
