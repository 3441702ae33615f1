"""Dynamic insertion: as many slots as ``max_seqs``, whole prompts, whole reservations."""

from tests.support.scheduler_steps import added, scheduler_of, sequence, step, steps


def test_a_newcomer_takes_a_free_slot_with_its_whole_prompt_whatever_the_budget() -> None:
    scheduler = added(
        scheduler_of(batching="insertion", max_seqs=2, token_budget=2),
        sequence("a", 20, 2),
        sequence("b", 20, 3),
        sequence("c", 9, 1),
    )
    assert steps(scheduler, 3) == ["a@0+20 b@0+20", "a@20+1 b@20+1", "b@21+1 c@0+9"]


def test_the_whole_length_is_reserved() -> None:
    scheduler = added(
        scheduler_of(batching="insertion"), sequence("a", 20, 13), sequence("b", 20, 14)
    )
    assert step(scheduler) == "a@0+20"
    assert scheduler.load() == (1, 1, 32)


def test_newcomers_of_a_step_are_padded_to_the_longest_where_it_is_asked() -> None:
    """The two that start together are a matrix; the third comes alone, and nothing pads it."""
    requests = [sequence("a", 20, 2), sequence("b", 5, 3), sequence("c", 9, 1)]
    scheduler = added(scheduler_of(batching="insertion", max_seqs=2, pad_newcomers=True), *requests)
    assert steps(scheduler, 3) == ["a@0+20 b@0+5~15", "a@20+1 b@5+1", "b@6+1 c@0+9"]
