"""Prefill first: prompts alone as long as one can be admitted, decodes else."""

import pytest

from tests.support.scheduler_steps import added, scheduler_of, sequence, step, steps


def test_a_new_prompt_pauses_the_decodes() -> None:
    scheduler = added(scheduler_of(batching="prefill-first"), sequence("a", output=3))
    assert steps(scheduler, 2) == ["a@0+4", "a@4+1"]
    added(scheduler, sequence("b", output=3))
    assert steps(scheduler, 3) == ["b@0+4", "a@5+1 b@4+1", "b@5+1"]


def test_the_whole_budget_is_for_prompts_and_a_long_one_is_split() -> None:
    scheduler = added(
        scheduler_of(batching="prefill-first", token_budget=6), sequence("a"), sequence("b", 13)
    )
    assert steps(scheduler, 5) == ["a@0+4", "b@0+6", "b@6+6", "b@12+1", "a@4+1 b@13+1"]


def test_without_room_for_a_prompt_the_decodes_go_on() -> None:
    scheduler = added(
        scheduler_of(batching="prefill-first", kv_tokens=16, max_model_len=16),
        sequence("a", 11, 4),
        sequence("b", 8, 2),
    )
    assert steps(scheduler, 5) == ["a@0+11", "a@11+1", "a@12+1", "a@13+1", "b@0+8"]


def test_a_full_house_decodes() -> None:
    scheduler = added(
        scheduler_of(batching="prefill-first", max_seqs=1), sequence("a"), sequence("b")
    )
    assert steps(scheduler, 3) == ["a@0+4", "a@4+1", "b@0+4"]


def test_decodes_that_cannot_grow_preempt_here_too() -> None:
    scheduler = added(
        scheduler_of(batching="prefill-first", kv_tokens=8, block_tokens=2, max_model_len=8),
        sequence("a", 4, 3),
        sequence("b", 4, 3),
    )
    assert step(scheduler) == "a@0+4 b@0+4"
    assert step(scheduler) == "a@4+1 -b"


def test_one_too_many_is_given_up_after_admission() -> None:
    scheduler = added(
        scheduler_of(batching="prefill-first", max_seqs=1, queue_limit=1),
        *(sequence(name) for name in "abc"),
    )
    assert step(scheduler) == "a@0+4"
    assert [seq.request_id for seq, _ in scheduler.dropped] == ["c"]


def test_decodes_preempt_while_a_prompt_waits_for_a_slot() -> None:
    scheduler = added(
        scheduler_of(
            batching="prefill-first", kv_tokens=8, block_tokens=2, max_model_len=8, max_seqs=2
        ),
        *(sequence(name, 4, 3) for name in "abc"),
    )
    assert steps(scheduler, 2) == ["a@0+4 b@0+4", "a@4+1 -b"]


@pytest.mark.parametrize("batching", ["prefill-first", "continuous"])
@pytest.mark.parametrize(
    ("budget_count", "said"),
    [
        ("rows", ["a@0+3 b@0+8 c@0+5"]),
        ("padded", ["a@0+3 b@0+8", "c@0+5"]),
    ],
)
def test_prompts_count_their_rows_or_as_padded_to_the_longest(
    batching: str, budget_count: str, said: list[str]
) -> None:
    """3 + 8 + 5 rows are 16, and so are 2 x 8; 3 x 8 are too many."""
    scheduler = added(
        scheduler_of(batching=batching, budget_count=budget_count),
        *(sequence(name, prompt, 1) for name, prompt in [("a", 3), ("b", 8), ("c", 5)]),
    )
    assert steps(scheduler, len(said)) == said


def test_decodes_leave_less_to_padded_prompts_that_run_beside_them() -> None:
    scheduler = added(scheduler_of(budget_count="padded"), sequence("a", 2, 9))
    step(scheduler)
    added(scheduler, sequence("b", 8, 1), sequence("c", 8, 1))
    assert steps(scheduler, 2) == ["a@2+1 b@0+8", "a@3+1 c@0+8"]


def test_prompts_wait_for_steps_of_decodes_after_those_before_them() -> None:
    """The second try is three steps after the first, which found no slot."""
    scheduler = added(
        scheduler_of(batching="prefill-first", decodes_between_prefills=3, max_seqs=2),
        sequence("a", 4, 9), sequence("b", 4, 6), sequence("c", 4, 1),
    )  # fmt: skip
    decodes = [f"a@{4 + n}+1 b@{4 + n}+1" for n in range(5)]
    assert steps(scheduler, 9) == ["a@0+4 b@0+4", *decodes, "a@9+1", "c@0+4", "a@10+1"]


def test_a_prompt_that_comes_to_decodes_waits_for_its_turn_in_runs_of_steps_too() -> None:
    scheduler = added(
        scheduler_of(batching="prefill-first", decodes_between_prefills=4), sequence("a", 4, 20)
    )
    assert step(scheduler) == "a@0+4"
    batch = scheduler.schedule(0.0)
    assert batch is not None
    scheduler.complete(batch, 5)
    added(scheduler, sequence("b", 4, 1))
    batch = scheduler.schedule(0.0)
    assert batch is not None
    assert scheduler.repeatable_steps(batch) == 3
    scheduler.complete(batch, 3)
    assert step(scheduler) == "b@0+4"
