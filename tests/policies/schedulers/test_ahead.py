"""Steps decided ahead: what a decision does not know yet, and what that costs."""

from typing import Any

import pytest

from servetwin.policies.protocols import Scheduler
from servetwin.workloads.errors import PolicyError
from tests.support.scheduler_steps import added, scheduler_of, sequence, step, steps


def ahead(**settings: Any) -> Scheduler:
    return scheduler_of(batching="unified", decide_ahead=True, **settings)


def test_an_ended_sequence_holds_its_slot_for_one_step_more() -> None:
    """The step that b runs alone had been decided before a ended; c would fit at once else."""
    both = sequence("a", 4, 2), sequence("b", 4, 4), sequence("c", 4, 2)
    scheduler = added(ahead(max_seqs=2), *both)
    assert steps(scheduler, 4) == ["a@0+4 b@0+4", "a@4+1 b@4+1", "b@5+1", "b@6+1 c@0+4"]
    assert steps(scheduler, 2) == ["c@4+1", "idle"]
    assert scheduler.load() == (0, 0, 64)


def test_a_sequence_that_only_its_last_token_ends_computes_one_row_in_vain() -> None:
    stops = sequence("a", 4, 2, estimated_tokens=9)
    scheduler = added(ahead(), stops, sequence("b", 4, 4))
    assert steps(scheduler, 4) == ["a@0+4 b@0+4", "a@4+1 b@4+1", "b@5+1 a@5+0~1", "b@6+1"]


def test_a_request_is_seen_by_the_decision_after_the_next() -> None:
    scheduler = added(ahead(), sequence("a", 4, 9))
    assert step(scheduler) == "a@0+4"
    added(scheduler, sequence("b", 4, 9))
    assert scheduler.load()[:2] == (1, 1)
    assert steps(scheduler, 2) == ["a@4+1", "a@5+1 b@0+4"]


def test_a_decision_without_rows_takes_no_time() -> None:
    """As many slots as sequences: the next step waits for their end, and is decided then."""
    scheduler = added(ahead(max_seqs=1), sequence("a", 4, 1), sequence("b", 4, 1))
    assert steps(scheduler, 3) == ["a@0+4", "b@0+4", "idle"]


def test_an_aborted_sequence_leaves_nothing() -> None:
    scheduler = added(ahead(), sequence("a", 4, 1), sequence("b", 4, 9))
    step(scheduler)
    added(scheduler, sequence("c", 4, 9))
    for name in "abc":
        aborted = scheduler.abort(name)
        assert aborted is not None
        assert aborted.request_id == name
    assert scheduler.load() == (0, 0, 64)


def test_queued_samples_take_slots_of_their_own() -> None:
    scheduler = scheduler_of(batching="unified", queue_samples=True, max_seqs=2)
    added(scheduler, sequence("a", 4, 2, samples=3))
    assert steps(scheduler, 4) == ["a@0+4 a@0+4", "a@4+1 a@4+1", "a@0+4", "a@4+1"]


def test_a_whole_prompt_waits_for_a_step_that_holds_it() -> None:
    scheduler = scheduler_of(
        batching="unified", chunk_prompts=False, token_budget=64, kv_tokens=128
    )
    added(scheduler, sequence("a", 40, 2), sequence("b", 30, 2))
    assert steps(scheduler, 2) == ["a@0+40", "a@40+1 b@0+30"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batching": "static", "decide_ahead": True}, "use batching: unified"),
        ({"batching": "beam", "queue_samples": True}, "use queue_samples: false"),
        ({"batching": "unified", "chunk_prompts": False}, "at least max_model_len"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(PolicyError, match=message):
        scheduler_of(**settings)
