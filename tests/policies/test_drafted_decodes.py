"""Decodes that verify drafts in lockstep: the same as each of them alone, pass by pass."""

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.policies.drafted_decodes import DraftedDecodes, IntArray, OfPasses
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import PolicyError
from tests.support.effort import examples
from tests.support.scheduler_steps import sequence

ROWS = 3


def decoding(computed: int, output: int) -> Sequence:
    seq = sequence("a", prompt=computed, output=output)
    seq.base_computed_tokens, seq.base_generated_tokens = computed, 1
    return seq


def powers(exponent: int) -> OfPasses:
    def of_passes(base: int, way: IntArray) -> IntArray:
        return (base + way) ** exponent

    return of_passes


POWERS = [powers(exponent % 6) for exponent in range(14)]
"""More than are kept at a time."""


class Alone:
    """A member with what comes out of its passes still to come."""

    def __init__(self, seq: Sequence, emitted: list[int]) -> None:
        self.seq = seq
        self.computed, self.left = seq.base_computed_tokens, seq.max_tokens - 1
        self.emitted = emitted

    @property
    def starts(self) -> list[int]:
        """The first positions of its passes."""
        before = list(accumulate(self.emitted, initial=0))
        return [self.computed + tokens for tokens in before if tokens < self.left]

    def advance(self, passes: int) -> None:
        tokens = min(self.left, sum(self.emitted[:passes]))
        self.emitted = self.emitted[passes:]
        self.computed += tokens
        self.left -= tokens


def check(group: DraftedDecodes, members: list[Alone]) -> None:
    assert list(group) == [member.seq for member in members]
    assert [seq.computed_tokens for seq in group] == [member.computed for member in members]
    assert [seq.max_tokens - seq.generated_tokens for seq in group] == [m.left for m in members]
    assert group.context_tokens == sum(member.computed for member in members)
    if members:
        passes = min(len(member.starts) for member in members)
        assert group.steps_to_end() == passes
        starts = [[member.starts[k] for member in members] for k in range(passes)]
        assert group.context_sums(passes) == [sum(here) for here in starts]
        for place in (1, *range(len(POWERS))):
            powers_of = [sum(start ** (place % 6) for start in here) for here in starts]
            assert group.sums(POWERS[place], passes) == powers_of


@settings(max_examples=examples(30))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["join", "join", "advance", "advance", "leave"]),
            st.integers(0, 30),
            st.integers(2, 700),
            st.lists(st.integers(0, ROWS), min_size=1, max_size=9),
        ),
        max_size=25,
    )
)
def test_members_come_as_far_as_each_alone_whatever_joins_and_leaves(
    moves: list[tuple[str, int, int, list[int]]],
) -> None:
    group, members = DraftedDecodes(ROWS), list[Alone]()
    for move, number, output, pattern in moves:
        if move == "join":
            passes = [*pattern, 1] * output
            seq = decoding(number, output)
            group.join(seq)
            group.set_schedule(seq, np.cumsum([0, *passes]))
            members.append(Alone(seq, passes))
        elif members and move == "leave":
            left = members.pop(number % len(members))
            group.leave(left.seq)
            assert left.seq.lockstep is None
            assert left.seq.computed_tokens == left.computed
        elif members:
            passes_run = 1 + number % group.steps_to_end()
            coming = [group.coming(member.seq, passes_run) for member in members]
            before = [member.left for member in members]
            ended = group.advance(passes_run)
            for member in members:
                member.advance(passes_run)
            gained = [old - member.left for old, member in zip(before, members, strict=True)]
            assert coming == gained
            assert ended == [member.seq for member in members if not member.left]
            members = [member for member in members if member.left]
        check(group, members)


def test_the_passes_end_with_the_first_token_of_a_member_that_has_none() -> None:
    """Blocks of three passes: of three members that join pass by pass, the second leaves."""
    group = DraftedDecodes(ROWS)
    way, members = np.cumsum([0, 0, 0, 3] + [0, 0, 3] * 9), [decoding(5, 7) for _ in range(3)]
    found = []
    for seq in members:
        seq.base_generated_tokens = 0
        group.join(seq)
        group.set_schedule(seq, way)
        assert group.advance(1) == []
    assert group.began == members[:1]
    group.leave(members[1])
    while group.size:
        steps = group.steps_to_end()
        ended = group.advance(steps)
        found.append((group.steps, [members.index(s) for s in group.began], len(ended)))
    assert found == [(5, [2], 0), (9, [], 1), (11, [], 1)]


def test_members_that_end_in_one_pass_end_in_the_order_of_joining() -> None:
    group, members = DraftedDecodes(ROWS), [decoding(computed, 4) for computed in (9, 5, 7)]
    for seq in members:
        group.join(seq)
        group.set_schedule(seq, np.arange(4))
    assert group.advance(3) == members


def test_a_member_of_which_nothing_is_said_stops_the_passes() -> None:
    group = DraftedDecodes(ROWS)
    first, second = decoding(5, 9), decoding(6, 9)
    group.join(first)
    group.set_schedule(first, np.arange(10))
    group.join(second)
    assert group.context_tokens == 11
    for go_on in (lambda: group.advance(1), group.steps_to_end):
        with pytest.raises(PolicyError, match="2 sequences verified drafts, but it is said of 1"):
            go_on()
    group.leave(second)
    assert (group.steps_to_end(), group.context_tokens) == (8, 11 - 6)


def test_pairs_are_those_of_all_rows_with_all_positions_before_them() -> None:
    group = DraftedDecodes(ROWS)
    for computed in (4, 7):
        group.join(decoding(computed, 9))
    assert group.verified_pairs() == sum(start + row + 1 for start in (4, 7) for row in range(ROWS))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["join", "join", "pass", "pass", "pass", "leave", "stop"]),
            st.integers(0, 30),
            st.integers(2, 12),
            st.lists(st.integers(0, ROWS), min_size=1, max_size=5),
        ),
        max_size=40,
    )
)
def test_said_pass_by_pass_members_are_where_they_would_be_if_foreseen(
    moves: list[tuple[str, int, int, list[int]]],
) -> None:
    """What an engine says after each pass does what a simulator says at once."""
    groups = [DraftedDecodes(ROWS), DraftedDecodes(ROWS)]
    passes: dict[str, list[int]] = {}
    for number, (move, computed, output, pattern) in enumerate(moves):
        members = [list(group) for group in groups]
        if move == "join":
            emitted = passes[str(number)] = [*pattern, 1] * output
            for group, foreseen in zip(groups, (True, False), strict=True):
                seq = decoding(computed, output)
                seq.request_id = str(number)
                group.join(seq)
                if foreseen:
                    group.set_schedule(seq, np.cumsum([0, *emitted]))
        elif members[0] and move in ("leave", "stop"):
            for group, seqs in zip(groups, members, strict=True):
                seq = seqs[computed % len(seqs)]
                group.leave(seq) if move == "leave" else seq.stop()
        elif members[0]:
            for seq in members[1]:
                groups[1].gained(seq, passes[seq.request_id][0])
            coming = [[group.coming(seq, 1) for seq in group] for group in groups]
            assert coming[0] == coming[1]
            ended = [[seq.request_id for seq in group.advance(1)] for group in groups]
            assert ended[0] == ended[1]
            for seq in members[0]:
                passes[seq.request_id].pop(0)
        assert groups[0].context_tokens == groups[1].context_tokens
        assert state_of(groups[0]) == state_of(groups[1])


def state_of(group: DraftedDecodes) -> list[tuple[str, int, int]]:
    return [(seq.request_id, seq.computed_tokens, seq.generated_tokens) for seq in group]


def test_a_pass_of_which_too_little_or_too_much_is_said_is_refused() -> None:
    group = DraftedDecodes(ROWS)
    first, second = decoding(5, 9), decoding(6, 9)
    group.join(first)
    group.join(second)
    group.gained(first, 2)
    with pytest.raises(PolicyError, match="2 sequences verified drafts, but it is said of 1"):
        group.advance(1)
    group.gained(second, 0)
    with pytest.raises(PolicyError, match="2 sequences verified drafts, but it is said of 2"):
        group.advance(2)
    assert group.advance(1) == []
    assert [seq.computed_tokens for seq in group] == [7, 6]
    with pytest.raises(PolicyError, match="but it is said of 0"):
        group.advance(1)
    for tokens in (-1, ROWS + 1):
        with pytest.raises(PolicyError, match=f"^{tokens} tokens cannot come out of a pass of 3"):
            group.gained(first, tokens)
