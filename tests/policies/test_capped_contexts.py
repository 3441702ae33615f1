"""What decodes see of their contexts, kept while they run: the same as summed anew."""

from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.lockstep import Lockstep
from servetwin.policies.sequence import Sequence

LIMITS = (1, 7, 12)


def decoding(computed: int, later_tokens: int) -> Sequence:
    seq = Sequence("", 0.0, computed, 1 + later_tokens)
    seq.base_computed_tokens, seq.base_generated_tokens = computed, 1
    return seq


def seen(group: Lockstep, limit: int, after: int) -> int:
    return sum(min(seq.computed_tokens + 1 + after, limit) for seq in group)


def check(group: Lockstep) -> None:
    """Every line is the sum over the members for as many steps as it says, and no longer."""
    for limit in LIMITS:
        for after in (0, 1, 5):
            tokens, growth, steps = group.seen_tokens(limit, after)
            ahead = [seen(group, limit, after + j) for j in range(min(steps, 20) + 1)]
            line = [tokens + growth * j for j in range(len(ahead))]
            assert ahead[:-1] == line[:-1]
            assert (ahead[-1] == line[-1]) == (steps > 20 or len(ahead) == 1)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20), st.integers(1, 15)), max_size=25))
def test_lines_are_the_sums_over_the_members_whoever_joins_and_leaves(
    moves: list[tuple[int, int, int]],
) -> None:
    group = Lockstep(4)
    waiting: list[Sequence] = []
    for move, computed, steps in moves:
        if move == 0 and group.size:
            group.advance(min(steps, group.steps_to_end()))
        elif move == 1 and group.size:
            waiting.append(next(iter(group)))
            group.leave(waiting[-1])
        elif move == 2 and waiting:
            group.join(waiting.pop())
        else:
            group.join(decoding(computed, steps))
        check(group)


def test_a_limit_that_is_first_asked_for_later_knows_who_is_there() -> None:
    group = Lockstep(4)
    group.join(decoding(3, 9))
    group.advance(2)
    group.join(decoding(8, 9))
    assert group.seen_tokens(7) == (6 + 7, 1, 2)
    assert group.seen_tokens(7, 2) == (14, 0, 1 << 62)
