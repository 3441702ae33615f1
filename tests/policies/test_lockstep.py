"""Decodes in lockstep: one step counter stands for the progress of every member."""

from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.lockstep import Lockstep
from servetwin.policies.sequence import Sequence
from tests.support.scheduler_steps import sequence


def decoding(name: str, computed: int, generated: int, output: int) -> Sequence:
    seq = sequence(name, prompt=computed - generated + 1, output=output)
    seq.base_computed_tokens, seq.base_generated_tokens = computed, generated
    return seq


def test_members_advance_together_and_leave_when_their_last_token_is_out() -> None:
    group = Lockstep(4)
    first, second = decoding("a", 5, 1, 4), decoding("b", 9, 3, 9)
    group.join(first)
    assert group.advance(1) == []
    group.join(second)
    assert (group.size, group.context_tokens, group.steps) == (2, 6 + 9, 1)
    assert group.steps_to_end() == 2
    assert group.advance(2) == [first]
    assert (first.computed_tokens, first.generated_tokens, first.lockstep) == (8, 4, None)
    assert (second.computed_tokens, second.generated_tokens, second.total_tokens) == (11, 5, 12)
    assert (group.size, group.context_tokens) == (1, 11)
    assert group.steps_to_end() == 4
    assert group.advance(4) == [second]
    assert (group.size, group.context_tokens) == (0, 0)


def test_members_are_listed_in_the_order_of_joining() -> None:
    group = Lockstep(4)
    seqs = [decoding(name, 5, 1, 9) for name in "abc"]
    for seq in seqs:
        group.join(seq)
    group.leave(seqs[1])
    assert list(group) == [seqs[0], seqs[2]]
    assert list(reversed(group)) == [seqs[2], seqs[0]]


def test_a_member_that_left_and_joined_again_ends_once_at_its_new_step() -> None:
    group = Lockstep(4)
    seq, other = decoding("a", 5, 1, 4), decoding("b", 5, 1, 9)
    group.join(seq)
    group.join(other)
    group.leave(seq)
    assert group.steps_to_end() == 8
    group.advance(2)
    group.join(seq)
    assert group.steps_to_end() == 3
    assert group.advance(1) == []
    assert group.advance(2) == [seq]
    assert (seq.computed_tokens, seq.generated_tokens) == (8, 4)


def test_a_stopped_member_leaves_with_the_running_step() -> None:
    group = Lockstep(4)
    seqs = [decoding(name, 5, 1, 9) for name in "ab"]
    for seq in seqs:
        group.join(seq)
    seqs[0].stop()
    assert seqs[0].finished
    assert group.advance(1) == [seqs[0]]
    assert seqs[0].generated_tokens == 2
    assert group.advance(1) == []
    assert list(group) == [seqs[1]]


def test_a_stopped_member_that_left_already_is_not_taken_out_again() -> None:
    group = Lockstep(4)
    seq, other = decoding("a", 5, 1, 9), decoding("b", 5, 1, 9)
    group.join(seq)
    group.join(other)
    seq.stop()
    group.leave(seq)
    assert group.advance(1) == []
    assert group.size == 1


@given(data=st.data(), block=st.integers(1, 5))
def test_new_blocks_are_those_that_each_member_needs(data: st.DataObject, block: int) -> None:
    group = Lockstep(block)
    for name in range(data.draw(st.integers(1, 6))):
        group.join(decoding(str(name), data.draw(st.integers(1, 20)), 1, 1000))
        steps = data.draw(st.integers(0, 7))
        group.granted_step += steps
        group.advance(steps)
    gone = data.draw(st.sampled_from(list(group)))
    group.leave(gone)
    ahead = data.draw(st.integers(0, 5))
    group.granted_step += ahead
    more = data.draw(st.integers(0, 12))
    granted = [seq.computed_tokens + ahead for seq in group]
    needed = sum(-(-(tokens + more) // block) - -(-tokens // block) for tokens in granted)
    assert group.new_blocks(more) == needed


def test_one_step_and_two_and_more_take_the_blocks_of_those_that_fill_theirs() -> None:
    group = Lockstep(4)
    for computed in (4, 7, 8, 12, 13):
        group.join(decoding("", computed, 1, 99))
    # full at once: 4, 8 and 12; after one step: 7; after three: 13
    assert [group.new_blocks(steps) for steps in range(1, 10)] == [3, 4, 4, 5, 8, 9, 9, 10, 13]
