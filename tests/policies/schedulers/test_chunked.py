"""Chunked prefill: every step is filled to the budget with pieces of prompts."""

import pytest

from servetwin.policies.batch import BatchShape
from servetwin.policies.protocols import Scheduler
from tests.support.scheduler_steps import added, line, scheduler_of, sequence, step, steps


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


def steps_and_free(scheduler: Scheduler, count: int) -> list[str]:
    """One line per step: its batch, and the KV tokens that were free while it ran."""
    said = []
    for _ in range(count):
        batch = scheduler.schedule(0.0)
        said.append(f"{line(batch)} | {scheduler.memory.free_tokens()}")
        if batch is not None:
            scheduler.complete(batch)
    return said


@pytest.mark.parametrize(
    ("prompt_blocks", "free"), [("whole", [44, 44, 40, 40]), ("chunk", [56, 52, 40, 40])]
)
def test_a_prompt_takes_its_blocks_at_once_or_chunk_by_chunk(
    prompt_blocks: str, free: list[int]
) -> None:
    scheduler = added(
        scheduler_of(batching="chunked", token_budget=6, prompt_blocks=prompt_blocks),
        sequence("a", 17, 3), sequence("b", 1, 4),
    )  # fmt: skip
    batches = ["a@0+6", "a@6+6", "a@12+5 b@0+1", "a@17+1 b@1+1"]
    expected = [f"{batch} | {tokens}" for batch, tokens in zip(batches, free, strict=True)]
    assert steps_and_free(scheduler, 4) == expected


def test_a_prompt_that_finds_no_block_for_its_chunk_loses_those_it_has() -> None:
    """Eight blocks of 4. ``b`` comes back after its preemption at 4, since its first chunk fits,
    and finds no sixth block at 7; it is admitted again as soon as a chunk fits."""
    scheduler = added(
        scheduler_of(batching="chunked", token_budget=8, kv_tokens=32, prompt_blocks="chunk"),
        sequence("a", 8, 9), sequence("b", 20, 2),
    )  # fmt: skip
    assert steps_and_free(scheduler, 12) == [
        "a@0+8 | 24",
        "a@8+1 b@0+7 | 12",
        "a@9+1 b@7+7 | 4",
        "a@10+1 b@14+6 | 0",
        "a@11+1 -b | 20",
        "a@12+1 b@0+7 | 8",
        "a@13+1 b@7+7 | 0",
        "a@14+1 -b | 16",
        "a@15+1 b@0+7 | 8",
        "b@7+8 | 16",
        "b@15+6 | 8",
        "idle | 32",
    ]


def test_a_whole_prompt_is_admitted_only_where_all_of_it_fits() -> None:
    """The same two, all blocks at once: ``b`` comes back when ``a`` has ended, and not before."""
    scheduler = added(
        scheduler_of(batching="chunked", token_budget=8, kv_tokens=32),
        sequence("a", 8, 9), sequence("b", 20, 2),
    )  # fmt: skip
    assert steps_and_free(scheduler, 10)[4:] == [
        "a@11+1 -b | 20", "a@12+1 | 16", "a@13+1 | 16", "a@14+1 | 16", "a@15+1 | 16", "b@0+8 | 8",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("decode", BatchShape(2, 3 + 5, 2, ())),
        ("prefill", BatchShape(1, 3, 1, ((4, 1),))),
    ],
)
def test_the_last_row_of_a_prompt_is_timed_as_a_decode_or_as_a_chunk(
    kind: str, shape: BatchShape
) -> None:
    scheduler = added(
        scheduler_of(batching="chunked", token_budget=6, one_row_chunk=kind),
        sequence("a", 2, 3), sequence("b", 5, 1),
    )  # fmt: skip
    assert step(scheduler) == "a@0+2 b@0+4"
    batch = scheduler.schedule(0.0)
    assert batch is not None
    assert line(batch) == "a@2+1 b@4+1"
    assert batch.shape() == shape
    assert len(batch.decode_contexts()) == shape.decode_sequences
    assert batch.longest_context() == (5 if kind == "decode" else 3)
