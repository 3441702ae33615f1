"""Which sequence is preempted, and what happens to its keys and values."""

import pytest

from servetwin.policies.config import Victim
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.schedulers.preemption import HostMemory, choose_victim
from servetwin.policies.sequence import Sequence
from tests.support.scheduler_steps import added, scheduler_of, sequence, step, steps


def running(
    decodes: dict[str, tuple[int, int]], prefilling: dict[str, int]
) -> tuple[Lockstep, list[Sequence]]:
    """Return decodes by (priority, generated tokens), and prompts in progress by priority."""
    lockstep = Lockstep(4)
    for name, (priority, generated) in decodes.items():
        seq = sequence(name, output=99, priority=priority)
        seq.generated_tokens = generated
        lockstep.join(seq)
    return lockstep, [sequence(name, priority=p) for name, p in prefilling.items()]


@pytest.mark.parametrize(
    ("victim", "decodes", "prefilling", "chosen"),
    [
        ("newest", {"a": (0, 1), "b": (9, 5)}, {}, "b"),
        ("newest", {"a": (0, 1), "b": (0, 1)}, {"c": 0, "d": 0}, "d"),
        ("lowest-priority", {"a": (1, 1), "b": (2, 1)}, {"c": 3}, "a"),
        ("lowest-priority", {"a": (3, 1), "b": (2, 1)}, {"c": 1, "d": 2}, "c"),
        ("lowest-priority", {"a": (1, 1), "b": (1, 1)}, {"c": 2}, "b"),
        ("lowest-priority", {"a": (1, 1), "b": (1, 1)}, {"c": 1, "d": 1}, "d"),
        ("least-progress", {"a": (0, 2), "b": (0, 5)}, {}, "a"),
        ("least-progress", {"a": (0, 5), "b": (0, 2)}, {}, "b"),
        ("least-progress", {"a": (0, 2), "b": (0, 2)}, {}, "b"),
        ("least-progress", {"a": (0, 2), "b": (0, 2)}, {"c": 0, "d": 0}, "d"),
    ],
)
def test_the_victim_is_the_newest_of_equals(
    victim: Victim,
    decodes: dict[str, tuple[int, int]],
    prefilling: dict[str, int],
    chosen: str,
) -> None:
    assert choose_victim(victim, *running(decodes, prefilling)).request_id == chosen


def test_progress_counts_what_was_generated_in_lockstep() -> None:
    lockstep, _ = running({"a": (0, 1)}, {})
    lockstep.advance(3)
    late = sequence("b", output=99)
    late.generated_tokens = 2
    lockstep.join(late)
    assert choose_victim("least-progress", lockstep, []) is late


def test_host_memory_is_filled_to_the_last_token_and_given_back() -> None:
    host = HostMemory(10)
    first, second, third = (sequence(name) for name in "abc")
    first.computed_tokens, second.computed_tokens, third.computed_tokens = 6, 4, 1
    assert host.store(first)
    assert host.store(second)
    assert (first.on_host, second.on_host) == (True, True)
    assert not host.store(third)
    assert not third.on_host
    host.fetch(second)
    assert not second.on_host
    assert host.store(third)


def test_decodes_that_cannot_grow_preempt_until_the_rest_can() -> None:
    """Blocks of 2: three prompts of 2 take 3 of 4 blocks; only one can have a second block."""
    scheduler = added(
        scheduler_of(kv_tokens=8, block_tokens=2, max_model_len=8),
        *(sequence(name, prompt=2, output=4) for name in "abc"),
    )
    assert steps(scheduler, 2) == ["a@0+2 b@0+2 c@0+2", "a@2+1 b@2+1 -c"]
    assert scheduler.load() == (2, 1, 0)
    assert [seq.request_id for seq in scheduler.waiting()] == ["c"]
    assert [seq.preemptions for seq in scheduler.waiting()] == [1]


def test_a_step_that_preempted_admits_no_prompt() -> None:
    """The victim leaves two blocks, which are one more than its prompt needs."""
    scheduler = added(
        scheduler_of(kv_tokens=8, block_tokens=2, max_model_len=8, max_seqs=2),
        sequence("a", prompt=4, output=3),
        sequence("b", prompt=4, output=3),
    )
    assert step(scheduler) == "a@0+4 b@0+4"
    assert step(scheduler) == "a@4+1 -b"


def test_a_swapped_sequence_moves_over_the_link_twice_and_computes_nothing_anew() -> None:
    scheduler = added(
        scheduler_of(
            kv_tokens=8, block_tokens=2, max_model_len=8, preemption="swap", host_kv_tokens=4
        ),
        sequence("a", prompt=4, output=2),
        sequence("b", prompt=4, output=2),
    )
    step(scheduler)
    out = scheduler.schedule(0.0)
    assert out is not None
    assert [seq.on_host for seq in out.preempted] == [True]
    assert out.swapped_tokens == 4
    scheduler.complete(out)
    back = scheduler.schedule(0.0)
    assert back is not None
    assert [seq.request_id for seq in back.resumed] == ["b"]
    assert back.swapped_tokens == 4
    assert back.entries[0].start == 4
    assert scheduler.load() == (1, 0, 2)


@pytest.mark.parametrize(("host_tokens", "start"), [(4, 4), (3, 0)])
def test_a_sequence_too_long_for_host_memory_is_recomputed(host_tokens: int, start: int) -> None:
    scheduler = added(
        scheduler_of(
            kv_tokens=8,
            block_tokens=2,
            max_model_len=8,
            preemption="swap",
            host_kv_tokens=host_tokens,
        ),
        sequence("a", prompt=4, output=2),
        sequence("b", prompt=4, output=2),
    )
    assert steps(scheduler, 2)[1] == "a@4+1 -b"
    assert step(scheduler) == ("b@4+1" if start else "b@0+5")


def test_aborting_a_swapped_sequence_frees_its_host_memory() -> None:
    scheduler = added(
        scheduler_of(
            kv_tokens=8, block_tokens=2, max_model_len=8, preemption="swap", host_kv_tokens=4
        ),
        sequence("a", prompt=4, output=4),
        sequence("b", prompt=4, output=4),
    )
    steps(scheduler, 2)
    gone = scheduler.abort("b")
    assert gone is not None
    assert not gone.on_host
    scheduler.abort("a")
    assert scheduler.load() == (0, 0, 8)
    added(scheduler, sequence("c", prompt=4, output=4), sequence("d", prompt=4, output=4))
    assert steps(scheduler, 2)[1] == "c@4+1 -d"
    assert [seq.on_host for seq in scheduler.waiting()] == [True]


def test_abort_frees_what_a_request_holds_wherever_it_is() -> None:
    scheduler = added(
        scheduler_of(max_seqs=2, token_budget=6),
        sequence("decoding", prompt=4, output=9),
        sequence("prefilling", prompt=9),
        sequence("waiting"),
    )
    steps(scheduler, 2)
    assert scheduler.load() == (2, 1, 64 - 8 - 12)
    for name in ("waiting", "prefilling", "decoding"):
        seq = scheduler.abort(name)
        assert seq is not None
        assert seq.request_id == name
    assert scheduler.abort("decoding") is None
    assert scheduler.load() == (0, 0, 64)
    assert step(scheduler) == "idle"


@pytest.mark.parametrize(
    ("needs_free_block", "said"),
    [
        (False, ["a@6+1 b@4+1", "a@7+1 b@5+1", "a@8+1 -b"]),
        (True, ["a@6+1 b@4+1", "a@7+1 -b", "b@0+6"]),
    ],
)
def test_the_last_decode_may_take_the_last_free_block_and_none_can_do_without(
    needs_free_block: bool, said: list[str]
) -> None:
    """Four blocks of 4: ``b`` takes the last one; then ``a`` finds none, and needs none."""
    scheduler = added(
        scheduler_of(
            batching="prefill-first", kv_tokens=16, decode_needs_free_block=needs_free_block
        ),
        sequence("a", 6, 5), sequence("b", 4, 8),
    )  # fmt: skip
    assert step(scheduler) == "a@0+6 b@0+4"
    assert steps(scheduler, 3) == said


def test_the_decode_that_finds_no_free_block_may_be_the_last() -> None:
    """``a`` takes the last free block; ``b`` has room in its own, and is preempted all the same."""
    seqs = [sequence("a", 4, 5), sequence("b", 6, 5)]
    scheduler = added(scheduler_of(kv_tokens=16, decode_needs_free_block=True), *seqs)
    assert steps(scheduler, 2) == ["a@0+4 b@0+6", "a@4+1 -b"]


def test_what_was_preempted_may_come_back_in_the_same_step() -> None:
    scheduler = added(
        scheduler_of(kv_tokens=16, decode_needs_free_block=True, admit_after_preemption=True),
        sequence("a", 6, 5), sequence("b", 4, 8),
    )  # fmt: skip
    assert steps(scheduler, 4) == ["a@0+6 b@0+4", "a@6+1 b@4+1", "a@7+1 b@0+6 -b", "a@8+1 -b"]


@pytest.mark.parametrize(
    ("recompute", "said"),
    [
        ("all", ["a@5+1", "a@6+1", "a@7+1", "a@8+1", "b@0+4", "b@4+4", "b@8+3", "b@11+1", "idle"]),
        (
            "computed",
            ["a@5+1 b@0+3", "a@6+1 b@3+1", "a@7+1 b@4+1", "a@8+1 -b", "b@0+4", "b@4+2", "b@6+1",
             "b@7+1", "b@8+1", "b@9+1", "b@10+1", "b@11+1", "idle"],
        ),
    ],
)  # fmt: skip
def test_of_a_prompt_preempted_in_its_middle_all_is_recomputed_or_what_had_been_computed(
    recompute: str, said: list[str]
) -> None:
    """Four blocks of 4. ``b`` has computed 4 of 11 prompt tokens when it is preempted.

    With those as its prompt it comes back at once, decodes the fifth, and is preempted again: now
    as a decode, so the six tokens that it has are its prompt.
    """
    scheduler = added(
        scheduler_of(batching="chunked", kv_tokens=16, token_budget=4, recompute=recompute),
        sequence("a", 3, 7), sequence("b", 11, 2),
    )  # fmt: skip
    assert steps(scheduler, 3) == ["a@0+3 b@0+1", "a@3+1 b@1+3", "a@4+1 -b"]
    assert steps(scheduler, len(said)) == said
