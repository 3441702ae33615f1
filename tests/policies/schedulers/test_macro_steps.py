"""How often a batch repeats, and which arrivals may end the repetition."""

from servetwin.policies.protocols import Scheduler
from servetwin.policies.sequence import Sequence
from tests.support.scheduler_steps import added, line, scheduler_of, sequence, step


def repeats(scheduler: Scheduler) -> int:
    """Return how often the next batch repeats; the batch runs once."""
    batch = scheduler.schedule(0.0)
    assert batch is not None
    count = scheduler.repeatable_steps(batch)
    scheduler.complete(batch)
    return count


def test_decodes_repeat_until_the_first_of_them_ends() -> None:
    scheduler = added(scheduler_of(), sequence("a", output=6), sequence("b", output=4))
    assert [repeats(scheduler) for _ in range(6)] == [1, 3, 2, 1, 2, 1]


def test_decodes_repeat_until_a_block_is_missing() -> None:
    """Five blocks of 4; each prompt of 7 holds two: one of the decodes takes the last one."""
    scheduler = added(
        scheduler_of(kv_tokens=20, max_model_len=20), sequence("a", 7, 9), sequence("b", 6, 9)
    )
    assert repeats(scheduler) == 1
    assert repeats(scheduler) == 2
    assert repeats(scheduler) == 1


def test_a_run_of_steps_takes_the_memory_of_its_first_step_and_the_rest_when_it_has_run() -> None:
    scheduler = added(scheduler_of(), sequence("a", 4, 9))
    step(scheduler)
    batch = scheduler.schedule(0.0)
    assert batch is not None
    assert scheduler.repeatable_steps(batch) == 8
    assert scheduler.load() == (1, 0, 56)
    scheduler.complete(batch, 5)
    assert scheduler.load() == (1, 0, 52)
    assert line(scheduler.schedule(0.0)) == "a@9+1"


def test_decodes_repeat_while_the_next_in_line_finds_no_room() -> None:
    scheduler = added(
        scheduler_of(kv_tokens=16, max_model_len=16), sequence("a", 11, 5), sequence("b", 8, 2)
    )
    assert [repeats(scheduler) for _ in range(3)] == [1, 4, 3]


def test_decodes_do_not_repeat_where_the_head_of_the_queue_may_change() -> None:
    scheduler = added(
        scheduler_of(
            kv_tokens=16, max_model_len=16, queue_order="longest-prefix", prefix_cache=True
        ),
        sequence("a", 11, 5),
        sequence("b", 8, 2),
    )
    assert [repeats(scheduler) for _ in range(3)] == [1, 1, 1]


def test_an_arrival_changes_the_batch_where_a_slot_is_free_and_nobody_waits_before_it() -> None:
    scheduler = added(scheduler_of(max_seqs=2), sequence("a", output=9))
    step(scheduler)
    second = sequence("b", output=9)
    added(scheduler, second)
    assert scheduler.changes_batch(second)
    third = sequence("c")
    added(scheduler, third)
    assert not scheduler.changes_batch(third)
    step(scheduler)
    assert not scheduler.changes_batch(third)
    scheduler.abort("c")
    scheduler.abort("b")
    fourth = sequence("d")
    added(scheduler, fourth)
    assert scheduler.changes_batch(fourth)


def test_a_queue_in_another_order_may_have_a_newcomer_next() -> None:
    scheduler = added(
        scheduler_of(kv_tokens=16, max_model_len=16, queue_order="sjf"),
        sequence("a", 9, 2),
        sequence("b", 13, 2),
    )
    step(scheduler)
    shorter, longer = sequence("c", 12, 2), sequence("d", 13, 3)
    added(scheduler, longer)
    assert not scheduler.changes_batch(longer)
    added(scheduler, shorter)
    assert scheduler.changes_batch(shorter)


def test_a_full_queue_gives_the_next_arrival_up_at_the_next_step() -> None:
    scheduler = scheduler_of(max_seqs=1, queue_limit=1)
    waiting: list[Sequence] = [sequence("a", output=9), sequence("b"), sequence("c")]
    added(scheduler, waiting[0])
    step(scheduler)
    added(scheduler, waiting[1])
    assert not scheduler.changes_batch(waiting[1])
    added(scheduler, waiting[2])
    assert scheduler.changes_batch(waiting[2])
    step(scheduler)
    assert [seq.request_id for seq, _ in scheduler.dropped] == ["c"]


def test_what_can_run_runs_at_once() -> None:
    assert added(scheduler_of(), sequence("a")).wake_s() is None


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


def test_a_batch_repeats_until_its_next_member_ends() -> None:
    scheduler = added(
        scheduler_of(batching="static", max_seqs=3), sequence("a", 4, 6), sequence("b", 4, 4)
    )
    counts = []
    for _ in range(3):
        batch = scheduler.schedule(9.0)
        assert batch is not None
        counts.append(scheduler.repeatable_steps(batch))
        scheduler.complete(batch, counts[-1])
    assert counts == [1, 3, 2]
    assert scheduler.load() == (0, 0, 64)


def test_only_one_too_many_interrupts_a_run_of_steps() -> None:
    scheduler = added(
        scheduler_of(batching="static", max_seqs=1, queue_limit=1), sequence("a", 4, 9)
    )
    step(scheduler)
    for name, changes in (("b", False), ("c", True)):
        seq = sequence(name)
        added(scheduler, seq)
        assert scheduler.changes_batch(seq) == changes
    step(scheduler)
    assert [seq.request_id for seq, _ in scheduler.dropped] == ["c"]
