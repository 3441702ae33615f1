"""Steps decided ahead: what a decision does not know yet, and what that costs."""

from typing import Any

import pytest

from servetwin.policies.protocols import Scheduler
from servetwin.workloads.errors import PolicyError
from tests.support.scheduler_steps import added, line, scheduler_of, sequence, step, steps


def ahead(**settings: Any) -> Scheduler:
    return scheduler_of(batching="unified", queue_samples=True, decide_ahead=True, **settings)


def test_an_ended_sequence_holds_its_slot_for_one_step_more() -> None:
    """An empty step takes no time; an end that its length does not tell costs ``stop`` a row."""
    stops = sequence("stop", 4, 2, estimated_tokens=9)
    requests = sequence("a", 4, 2), sequence("b", 4, 4), sequence("c", 4, 2), stops
    scheduler = ahead(max_seqs=2)
    lines = "a@0+4 b@0+4, a@4+1 b@4+1, b@5+1, b@6+1 c@0+4, c@4+1, stop@0+4, stop@4+1, stop@5+0~1"
    assert steps(added(scheduler, *requests), 9) == [*lines.split(", "), "idle"]
    assert scheduler.load() == (0, 0, 64)


def test_a_request_is_seen_by_the_decision_after_the_next() -> None:
    scheduler = ahead()
    added(scheduler, sequence("a", 4, 9))
    assert step(scheduler) == "a@0+4"
    added(scheduler, sequence("b", 4, 9))
    assert scheduler.load()[:2] == (1, 1)
    assert steps(scheduler, 2) == ["a@4+1", "a@5+1 b@0+4"]


@pytest.mark.parametrize(
    ("right", "lines"),
    [(2, ["a@0+4", "a@4+3", "a@7+0~3"]), (1, ["a@0+4", "a@4+3", "a@6+3"])],
)
def test_a_pass_ahead_takes_all_of_the_one_before_to_be_right(right: int, lines: list[str]) -> None:
    """It has room for the rows of both; it is in vain if the end could not be foreseen."""
    scheduler = ahead(draft_rows=2)
    decodes = scheduler.decodes  # type: ignore[attr-defined]
    added(scheduler, sequence("a", 4, 4))
    found = []
    while (batch := scheduler.schedule(0.0)) is not None:
        found.append((line(batch), scheduler.load()[2]))
        for seq in decodes:
            decodes.gained(seq, 1 + right)
        scheduler.complete(batch)
    assert found == [*zip(lines, [60, 56, 52], strict=True)]
    assert scheduler.load() == (0, 0, 64)


def test_queued_samples_take_slots_of_their_own() -> None:
    scheduler = scheduler_of(batching="unified", queue_samples=True, max_seqs=2)
    added(scheduler, sequence("a", 4, 2, samples=3))
    assert steps(scheduler, 4) == ["a@0+4 a@0+4", "a@4+1 a@4+1", "a@0+4", "a@4+1"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batching": "static", "decide_ahead": True}, "batching: unified with"),
        ({"batching": "unified", "chunk_prompts": False}, "at least max_model_len"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(PolicyError, match=message):
        scheduler_of(**settings)
