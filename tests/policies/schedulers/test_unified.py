"""Unified batching, step by step: order, gate, long prompts, preemption in turn."""

from typing import Any

import pytest

from servetwin.policies.protocols import Scheduler
from tests.support.scheduler_steps import added, scheduler_of, sequence, step, steps


def unified(**settings: Any) -> Scheduler:
    return scheduler_of(batching="unified", **settings)


def test_decodes_and_pieces_of_prompts_fill_the_budget() -> None:
    scheduler = added(unified(token_budget=6), sequence("a", 4, 9), sequence("b", 9, 9))
    assert steps(scheduler, 4) == ["a@0+4 b@0+2", "a@4+1 b@2+5", "a@5+1 b@7+2", "a@6+1 b@9+1"]


def test_the_gate_asks_for_room_for_the_whole_prompt() -> None:
    """Seven of 16 blocks are free when b, of ten blocks, comes with a chunk of four."""
    for gated, joined in ((True, "a@36+1"), (False, "a@36+1 b@0+15")):
        scheduler = added(unified(full_prompt_gate=gated), sequence("a", 36, 9))
        steps(scheduler, 3)
        added(scheduler, sequence("b", 40, 9))
        assert step(scheduler) == joined


def test_a_prompt_takes_blocks_chunk_by_chunk() -> None:
    scheduler = added(unified(token_budget=8), sequence("a", 40, 2))
    step(scheduler)
    assert scheduler.load()[2] == 64 - 8
    step(scheduler)
    assert scheduler.load()[2] == 64 - 16


def test_long_prompts_are_held_back_only_while_others_are_there() -> None:
    scheduler = added(unified(long_prefill_tokens=5), sequence("a", 40, 2))
    assert step(scheduler) == "a@0+16"
    added(scheduler, sequence("b", 12, 3), sequence("c", 3, 3))
    assert steps(scheduler, 3) == [
        "a@16+5 b@0+5 c@0+3",
        "c@3+1 a@21+5 b@5+5",
        "c@4+1 a@26+5 b@10+2",
    ]


def test_a_prompt_in_progress_goes_on_when_a_younger_decode_finds_no_block() -> None:
    """The older prompt takes its blocks first; the younger decode loses its own."""
    scheduler = unified(kv_tokens=24, long_prefill_tokens=4, full_prompt_gate=False)
    added(scheduler, sequence("a", 20, 2), sequence("b", 7, 9))
    assert steps(scheduler, 2) == ["a@0+4 b@0+4", "a@4+4 b@4+3"]
    assert step(scheduler) == "b@7+1 a@8+4"
    assert step(scheduler) == "a@12+4 -b"


def test_a_victim_of_low_priority_gives_its_rows_back() -> None:
    scheduler = unified(kv_tokens=16, queue_order="priority", victim="lowest-priority")
    added(scheduler, sequence("low", 4, 9))
    assert step(scheduler) == "low@0+4"
    added(scheduler, sequence("high", 4, 9, priority=1))
    assert steps(scheduler, 4) == [
        "low@4+1 high@0+4", "low@5+1 high@4+1", "low@6+1 high@5+1", "low@7+1 high@6+1"
    ]  # fmt: skip
    assert step(scheduler) == "high@7+1 -low"  # low wants a third block, and is its own victim
    assert step(scheduler) == "high@8+1"


def test_a_step_in_which_nothing_runs_takes_no_time() -> None:
    """low, first in turn, preempts itself and ends the step; the next one is decided at once."""
    scheduler = unified(kv_tokens=16, queue_order="priority", victim="lowest-priority")
    assert step(added(scheduler, sequence("low", 3, 9))) == "low@0+3"
    assert step(added(scheduler, sequence("high", 12, 4, priority=1))) == "low@3+1 high@0+12"
    assert step(scheduler) == "high@12+1 -low"
    assert scheduler.load()[:2] == (1, 1)


@pytest.mark.parametrize("index", ["blocks", "radix"])
def test_a_preempted_sequence_finds_blocks_of_its_own_answer(index: str) -> None:
    scheduler = unified(
        kv_tokens=32, prefix_cache=True, prefix_index=index, max_model_len=32, token_budget=32
    )
    added(scheduler, sequence("a", 4, 16), sequence("b", 4, 20))
    said = steps(scheduler, 24)
    lost = next(number for number, line in enumerate(said) if line.endswith("-b"))
    back = next(line for line in said[lost + 1 :] if "b@" in line)
    assert ("b@12" in back) == (index == "blocks"), said
