"""A row of the step log: what was decided, before it ran."""

import pytest

from servetwin.policies.batch import BatchShape
from servetwin.policies.step_record import StepRecord, record_step
from tests.support.scheduler_steps import added, scheduler_of, sequence, step


def record_of_next(scheduler_name: str = "continuous") -> StepRecord:
    scheduler = scheduler_of(batching=scheduler_name, prefix_cache=True)
    added(scheduler, sequence("a", 9, 3, block_keys=[1, 2]))
    step(scheduler)
    added(scheduler, sequence("b", 9, block_keys=[1, 2]), sequence("c", 3))
    batch = scheduler.schedule(2.5)
    assert batch is not None
    return record_step(7, batch, scheduler, 2.5, 0.25, True)


def test_it_names_the_entries_the_hits_and_the_load() -> None:
    record = record_of_next()
    assert record.as_row() == {
        "step": 7,
        "now_s": 2.5,
        "duration_s": 0.25,
        "idle_before": True,
        "entries": [("a", 9, 1, 0), ("b", 8, 1, 0), ("c", 0, 3, 0)],
        "preempted": [],
        "hits": [("b", 8)],
        "free_tokens": 64 - 4 * (3 + 1 + 1),
        "running": 3,
        "waiting": 0,
    }
    assert record.shape() == BatchShape(2, 19, 2, ((0, 3),))


@pytest.mark.parametrize("batching", ["continuous", "chunked", "unified", "prefill-first"])
def test_free_tokens_are_what_is_left_once_the_batch_has_its_room(batching: str) -> None:
    """Where nobody waits too, and decodes only go on."""
    scheduler = scheduler_of(batching=batching)
    added(scheduler, sequence("a", 6, 12))
    for _ in range(12):
        batch = scheduler.schedule(0.0)
        assert batch is not None
        record = record_step(0, batch, scheduler, 0.0, 0.0, False)
        ((_, start, tokens, _),) = record.entries
        assert record.free_tokens == 64 - 4 * -(-(start + tokens) // 4)
        scheduler.complete(batch)


def test_equal_decisions_at_other_times_are_equal() -> None:
    record, prefill_first = record_of_next(), record_of_next("prefill-first")
    row = {**record.as_row(), "now_s": 9.0, "duration_s": 1.0, "step": 1}
    assert StepRecord(**row).decisions() == record.decisions()
    assert prefill_first.decisions() != record.decisions()
