"""Static batching: when a batch begins, what it holds, and when it ends."""

from servetwin.policies.protocols import Refusal
from tests.support.scheduler_steps import added, line, scheduler_of, sequence, step, steps

STATIC = {"batching": "static", "wait_limit_s": 2.0, "max_seqs": 3}


def test_a_batch_begins_when_it_is_full_or_its_first_has_waited_long_enough() -> None:
    scheduler = added(scheduler_of(**STATIC), sequence("a", arrival_s=1.0))
    assert scheduler.wake_s() == 3.0
    added(scheduler, sequence("b", arrival_s=1.5))
    assert step(scheduler, 2.999) == "idle"
    assert step(scheduler, 3.0) == "a@0+4 b@0+4"
    assert scheduler.wake_s() is None
    scheduler = added(scheduler_of(**STATIC), *(sequence(name) for name in "abcd"))
    assert step(scheduler, 0.0) == "a@0+4 b@0+4 c@0+4"
    assert scheduler.load() == (3, 1, 64 - 24)


def test_rows_of_finished_members_are_computed_to_the_end() -> None:
    scheduler = added(
        scheduler_of(**STATIC),
        sequence("a", 5, 1),
        sequence("b", 3, 4),
        sequence("c", 4, 2),
        sequence("d", 1, 1),
    )
    assert steps(scheduler, 5, now_s=9.0) == [
        "a@0+5 b@0+3~2 c@0+4~1",
        "b@3+1 c@4+1 a@5+0~1",
        "b@4+1 a@5+0~1 c@5+0~1",
        "b@5+1 a@5+0~1 c@5+0~1",
        "d@0+1",
    ]


def test_a_batch_repeats_until_its_next_member_ends() -> None:
    scheduler = added(scheduler_of(**STATIC), sequence("a", 4, 6), sequence("b", 4, 4))
    counts = []
    for _ in range(3):
        batch = scheduler.schedule(9.0)
        assert batch is not None
        counts.append(scheduler.repeatable_steps(batch))
        scheduler.complete(batch, counts[-1])
    assert counts == [1, 3, 2]
    assert scheduler.load() == (0, 0, 64)


def test_finished_members_hold_their_memory_until_the_batch_ends() -> None:
    scheduler = added(scheduler_of(**STATIC), sequence("a", 4, 1), sequence("b", 4, 5))
    batch = scheduler.schedule(9.0)
    assert batch is not None
    assert [seq.request_id for seq in scheduler.holders()] == ["a", "b"]
    assert [seq.request_id for seq in scheduler.complete(batch)] == ["a"]
    assert [seq.request_id for seq in scheduler.holders()] == ["b", "a"]
    assert scheduler.load() == (1, 0, 64 - 4 - 8)


def test_a_cached_prefix_shortens_the_padded_prompt() -> None:
    scheduler = added(
        scheduler_of(**STATIC, prefix_cache=True), sequence("a", 9, 1, block_keys=[1, 2])
    )
    step(scheduler, 9.0)
    again = sequence("b", 9, 1, block_keys=[1, 2])
    added(scheduler, again, sequence("c", 3, 1))
    assert step(scheduler, 9.0) == "b@8+1~2 c@0+3"
    assert again.cached_tokens == 8


def test_a_late_request_is_given_up_and_the_batch_forms_without_it() -> None:
    scheduler = added(
        scheduler_of(**STATIC, shed_ttft_s=3.0), sequence("a"), sequence("b", arrival_s=1.0)
    )
    assert step(scheduler, 4.0) == "b@0+4"
    assert [seq.request_id for seq, _ in scheduler.dropped] == ["a"]


def test_an_aborted_member_stops_and_its_row_is_held() -> None:
    scheduler = added(scheduler_of(**STATIC), sequence("a", 4, 9), sequence("b", 4, 3))
    added(scheduler, sequence("c"), sequence("d"))
    step(scheduler, 9.0)
    gone = scheduler.abort("a")
    assert gone is not None
    assert gone.stopped
    assert scheduler.abort("d") is not None
    assert scheduler.abort("unknown") is None
    assert steps(scheduler, 2, 9.0) == ["b@4+1 c@4+1 a@4+0~1", "b@5+1 a@4+0~1 c@5+0~1"]
    assert scheduler.load() == (0, 0, 64)


def test_the_last_member_to_be_aborted_ends_the_batch() -> None:
    scheduler = added(scheduler_of(**STATIC), sequence("a", 4, 9))
    step(scheduler, 9.0)
    scheduler.abort("a")
    assert scheduler.load() == (0, 0, 64)
    assert line(scheduler.schedule(9.0)) == "idle"


def test_only_one_too_many_interrupts_a_run_of_steps() -> None:
    scheduler = added(scheduler_of(**{**STATIC, "max_seqs": 1}, queue_limit=1), sequence("a", 4, 9))
    step(scheduler)
    for name, changes in (("b", False), ("c", True)):
        seq = sequence(name)
        added(scheduler, seq)
        assert scheduler.changes_batch(seq) == changes
    step(scheduler)
    assert [seq.request_id for seq, _ in scheduler.dropped] == ["c"]


def test_several_samples_are_refused() -> None:
    assert scheduler_of(**STATIC).add(sequence("a", samples=2)) == Refusal(
        "unsupported", "static batching gives one answer to a prompt, not 2"
    )


def test_the_next_batch_drags_no_rows_of_the_last_one_along() -> None:
    scheduler = added(scheduler_of(**STATIC), sequence("a", 4, 1), sequence("b", 4, 2))
    steps(scheduler, 2, 9.0)
    added(scheduler, sequence("c", 4, 2))
    assert steps(scheduler, 2, 9.0) == ["c@0+4", "c@4+1"]


def test_without_padding_only_tokens_are_computed() -> None:
    scheduler = added(
        scheduler_of(**STATIC, padding=False),
        sequence("a", 5, 1),
        sequence("b", 3, 4),
        sequence("c", 4, 2),
        sequence("d", 1, 1),
    )
    assert step(scheduler, 9.0) == "a@0+5 b@0+3 c@0+4"
    free_tokens = scheduler.memory.free_tokens()
    assert steps(scheduler, 2, now_s=9.0) == ["b@3+1 c@4+1", "b@4+1"]
    assert scheduler.memory.free_tokens() == free_tokens, "the batch holds its memory to its end"
    assert steps(scheduler, 2, now_s=9.0) == ["b@5+1", "d@0+1"]
