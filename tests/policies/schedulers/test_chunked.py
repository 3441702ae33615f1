"""Chunked prefill: every step is filled to the budget with pieces of prompts."""

from tests.support.scheduler_steps import added, scheduler_of, sequence, steps


def test_every_step_is_filled_to_its_budget() -> None:
    scheduler = added(
        scheduler_of(batching="chunked", token_budget=6),
        *(sequence(name, prompt, 3) for name, prompt in [("a", 4), ("b", 5), ("c", 7)]),
    )
    assert steps(scheduler, 4) == ["a@0+4 b@0+2", "a@4+1 b@2+3 c@0+2", "a@5+1 b@5+1 c@2+4",
                                   "b@6+1 c@6+1"]  # fmt: skip


def test_a_prompt_without_a_row_left_is_not_admitted() -> None:
    scheduler = added(
        scheduler_of(batching="chunked", token_budget=4), sequence("a", 4), sequence("b", 4)
    )
    assert steps(scheduler, 1) == ["a@0+4"]
    assert scheduler.load() == (1, 1, 60)
