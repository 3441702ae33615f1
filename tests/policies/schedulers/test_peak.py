"""The peak of memory over the future of running sequences."""

from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.lockstep import Lockstep
from servetwin.policies.schedulers.room_rules import peak_tokens
from servetwin.policies.sequence import Sequence
from tests.support.scheduler_steps import added, scheduler_of, sequence, steps


def running(held: int, left: int) -> Sequence:
    """Return a sequence that holds so many positions and has as many tokens left."""
    seq = sequence("a", held - 1, left + 2)
    seq.base_computed_tokens, seq.base_generated_tokens = held - 1, 1
    Lockstep(1).join(seq)
    return seq


def test_memory_peaks_when_a_sequence_ends() -> None:
    assert peak_tokens([]) == 0
    assert peak_tokens([running(8, 4)]) == 12
    assert peak_tokens([running(8, 4), running(8, 12)]) == 24
    assert peak_tokens([running(8, 12), running(20, 0)]) == 28


def test_a_prompt_counts_as_computed_with_its_first_token_out() -> None:
    assert peak_tokens([sequence("a", 7, 6)]) == peak_tokens([running(8, 4)])
    assert peak_tokens([sequence("a", 7, 1)]) == 8
    again = sequence("a", 5, 8)
    again.base_generated_tokens = 2
    assert peak_tokens([again]) == peak_tokens([running(8, 4)])


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), min_size=1, max_size=12))
def test_the_peak_is_the_most_of_all_steps_to_come(lengths: list[tuple[int, int]]) -> None:
    by_step = [sum(h + n for h, left in lengths if left >= n) for n in range(31)]
    assert peak_tokens([running(*length) for length in lengths]) == max(by_step)


def test_more_are_admitted_than_would_fit_with_all_their_ends() -> None:
    """8 + 4 and 8 + 12 positions in 27: at the peak 24 are held; 12 + 20 never are."""
    for admission, second in [("prompt", True), ("peak", True), ("full", False)]:
        scheduler = added(
            scheduler_of(kv_tokens=27, block_tokens=1, admission=admission),
            sequence("a", 7, 6), sequence("b", 7, 14),
        )  # fmt: skip
        assert steps(scheduler, 1) == ["a@0+7 b@0+7" if second else "a@0+7"]
    scheduler = added(
        scheduler_of(kv_tokens=24, block_tokens=1, admission="peak"),
        sequence("a", 7, 6), sequence("b", 7, 14),
    )  # fmt: skip
    assert steps(scheduler, 1) == ["a@0+7"], "the peak must stay below the memory's size"
