"""Which orders have a stable head, and what admission refuses or gives up."""

import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.protocols import Refusal
from servetwin.policies.queues.fair_share import FairShare
from servetwin.policies.queues.intake import Intake, has_stable_head, queue_in_order
from servetwin.policies.sequence import Sequence, Siblings
from tests.support.scheduler_steps import sequence
from tests.support.waiting_queues import ORDERS, popped, queue_of


def test_only_shipped_orders_that_cannot_change_have_a_stable_head() -> None:
    class Own(FairShare):
        """May have any order."""

    stable = [order for order in ORDERS if has_stable_head(queue_of(order))]
    assert stable == ["fcfs", "sjf", "priority", "edf", "fair"]
    assert not has_stable_head(Own())


def admission(**settings: object) -> Intake:
    config = PolicyConfig(**{"kv_tokens": 64, "block_tokens": 4, "max_model_len": 32, **settings})  # type: ignore[arg-type]
    memory = PagedKV(config)
    return Intake(queue_in_order(memory, config), memory, config)


def add(intake: Intake, seq: Sequence) -> Refusal | None:
    refusal = intake.refusal(seq)
    if refusal is None:
        intake.push(seq)
    return refusal


def test_a_request_may_be_as_long_as_the_model_allows() -> None:
    queue = admission()
    assert add(queue, sequence("a", 30, 2)) is None
    assert add(queue, sequence("b", 30, 3)) == Refusal(
        "too_long", "33 tokens are more than the model length of 32"
    )
    assert queue.queue.size == 1


def test_a_request_may_be_as_long_as_the_memory() -> None:
    queue = admission(kv_tokens=24)
    assert add(queue, sequence("a", 20, 5)) is None
    assert add(queue, sequence("b", 20, 6)) == Refusal(
        "too_long", "needs 25 KV tokens, the memory has 24 (6 blocks of 4)"
    )


def test_a_last_decode_without_a_free_block_is_refused_where_the_model_fits_the_memory() -> None:
    """Eight positions fill both blocks; then a decode that needs a free block finds none."""
    queue = admission(kv_tokens=8, max_model_len=8, decode_needs_free_block=True)
    assert add(queue, sequence("a", 7, 1)) is None
    assert add(queue, sequence("b", 2, 6)) == Refusal(
        "too_long", "needs 7 KV tokens, the memory has 8 (2 blocks of 4, 1 of them kept free)"
    )


def test_arrivals_are_numbered_from_one_and_leave_numbers_for_their_samples() -> None:
    queue = admission()
    seqs = [sequence(name) for name in "abc"]
    seqs[1].samples = 3
    for seq in seqs:
        add(queue, seq)
    assert [seq.arrival_number for seq in seqs] == [1, 2, 5]


@pytest.mark.parametrize(("limit_s", "late"), [(2.0, False), (1.999, True), (None, False)])
def test_a_request_is_late_when_it_waited_longer_than_its_limit(
    limit_s: float | None, late: bool
) -> None:
    queue = admission(shed_ttft_s=limit_s)
    seq = sequence("a", arrival_s=1.0)
    assert queue.give_up_if_late(seq, 3.0) == late
    assert [dropped.request_id for dropped, _ in queue.dropped] == (["a"] if late else [])


def has_run(field: str) -> Sequence:
    seq = sequence("ran", arrival_s=-99.0)
    setattr(seq, field, Siblings(seq) if field == "siblings" else 1)
    return seq


@pytest.mark.parametrize("field", ["preemptions", "base_computed_tokens", "siblings"])
def test_a_request_that_was_served_in_part_is_not_turned_away(field: str) -> None:
    queue = admission(shed_ttft_s=1.0, queue_limit=0)
    seq = has_run(field)
    assert not queue.give_up_if_late(seq, 9.0)
    add(queue, seq)
    queue.enforce_limit()
    assert queue.dropped == []


def test_the_newest_beyond_the_limit_are_given_up() -> None:
    queue = admission(queue_limit=2, queue_order="sjf")
    for name, prompt in (("a", 9), ("b", 3), ("c", 5), ("d", 1)):
        assert not queue.over_limit() or name == "d"
        add(queue, sequence(name, prompt))
    assert queue.over_limit()
    queue.enforce_limit()
    assert queue.may_change()
    assert [(seq.request_id, why) for seq, why in queue.dropped] == [
        ("c", Refusal("queue_full", "2 requests are waiting already")),
        ("d", Refusal("queue_full", "2 requests are waiting already")),
    ]
    assert not queue.over_limit()
    queue.enforce_limit()
    assert not queue.may_change()
    assert popped(queue.queue) == "ba"


def test_a_limit_of_none_gives_up_all_that_wait() -> None:
    queue = admission(queue_limit=0)
    add(queue, sequence("a"))
    assert queue.over_limit()
    queue.enforce_limit()
    assert (queue.may_change(), queue.queue.size) == (False, 0)


def test_without_a_limit_any_number_waits() -> None:
    queue = admission()
    for name in "abc":
        add(queue, sequence(name))
    queue.enforce_limit()
    assert (queue.over_limit(), queue.dropped) == (False, [])
