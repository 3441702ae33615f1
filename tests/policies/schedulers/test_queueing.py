"""The orders of the waiting queue, one by one, and what admission refuses or gives up."""

import pytest

from policies.config import PolicyConfig, QueueOrder
from policies.kv.paged import PagedKV
from policies.protocols import Refusal
from policies.schedulers.queueing import (
    SCANNED_HEADS,
    AdmissionQueue,
    FairShare,
    LongestPrefixFirst,
    WaitingQueue,
    has_stable_head,
    queue_in_order,
)
from policies.sequence import Sequence
from tests.support.scheduler_steps import sequence

ORDERS: list[QueueOrder] = ["fcfs", "sjf", "priority", "edf", "longest-prefix", "fair"]


def queue_of(order: QueueOrder) -> WaitingQueue:
    config = PolicyConfig(queue_order=order)
    return queue_in_order(PagedKV(config), config)


def pushed(queue: WaitingQueue, *seqs: Sequence) -> WaitingQueue:
    """Push sequences, numbered in this order unless they have a number."""
    for number, seq in enumerate(seqs, 1):
        seq.arrival_number = seq.arrival_number or number
        queue.push(seq)
    return queue


def popped(queue: WaitingQueue) -> str:
    """Pop all, each equal to the head before it."""
    names = []
    while queue.size:
        head = queue.head()
        assert queue.pop() is head
        assert head is not None
        names.append(head.request_id)
    assert queue.head() is None
    return "".join(names)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("fcfs", "abcd"),
        ("sjf", "cadb"),  # 10, 12, 9, 10 tokens
        ("priority", "bdac"),
        ("edf", "dacb"),
        ("longest-prefix", "abcd"),
        ("fair", "abcd"),
    ],
)
def test_the_order_and_its_ties(order: QueueOrder, expected: str) -> None:
    seqs = [
        sequence("a", 4, 9, estimated_tokens=6, priority=0, deadline_s=2.0),
        sequence("b", 4, 2, estimated_tokens=8, priority=2),
        sequence("c", 7, 2, priority=-1, deadline_s=2.0),
        sequence("d", 4, 6, priority=2, deadline_s=1.0),
    ]
    queue = pushed(queue_of(order), *seqs)
    assert queue.size == 4
    assert {seq.request_id for seq in queue} == set("abcd")
    assert popped(queue) == expected


@pytest.mark.parametrize("order", ORDERS)
def test_a_preempted_sequence_keeps_the_place_of_its_arrival(order: QueueOrder) -> None:
    queue = pushed(queue_of(order), *(sequence(name) for name in "abc"))
    first, second = queue.pop(), queue.pop()
    queue.push(second)
    queue.push(first)
    assert popped(queue) == "abc"


@pytest.mark.parametrize("order", ORDERS)
def test_a_removed_sequence_waits_no_more(order: QueueOrder) -> None:
    seqs = [sequence(name, prompt=9 - place) for place, name in enumerate("abcd")]
    queue = pushed(queue_of(order), *seqs)
    assert queue.remove("b") is seqs[1]
    assert queue.remove("b") is None
    assert queue.size == 3
    assert popped(queue) == ("dca" if order == "sjf" else "acd")


def test_service_costs_the_prompt_once_and_each_output_token_twice() -> None:
    """a has had 10 + 2 * 5 = 20; b comes before its second request below that, and not above."""
    for prompt, following in ((19, "b"), (21, "a")):
        queue = FairShare()
        first, other = sequence("a1", 10, 5, tenant="a"), sequence("b1", prompt, tenant="b")
        pushed(queue, first, other, sequence("a2", tenant="a"), sequence("b2", tenant="b"))
        assert [queue.pop(), queue.pop()] == [first, other]
        first.generated_tokens = 5
        queue.served(first)
        assert queue.pop().tenant == following


def test_cached_prompt_tokens_cost_nothing() -> None:
    queue = FairShare()
    first, other = sequence("a1", 10, tenant="a"), sequence("b1", 5, tenant="b")
    first.cached_tokens = 6
    pushed(queue, first, other, sequence("a2", tenant="a"), sequence("b2", tenant="b"))
    assert [queue.pop(), queue.pop()] == [first, other]
    assert queue.pop().tenant == "a"


def test_a_tenant_that_returns_is_lifted_to_the_least_of_those_that_wait() -> None:
    queue = FairShare()
    pushed(queue, *(sequence(f"a{i}", 10, tenant="a") for i in range(4)))
    queue.pop()
    queue.pop()
    late = [sequence(f"b{i}", 10, tenant="b", arrival_s=9.0) for i in range(2)]
    for number, seq in enumerate(late, 10):
        seq.arrival_number = number
        queue.push(seq)
    assert [queue.pop().request_id for _ in range(4)] == ["a2", "b0", "a3", "b1"]


def test_a_tenant_that_comes_to_an_empty_queue_is_lifted_to_the_one_that_left_last() -> None:
    queue = FairShare()
    pushed(queue, sequence("a1", 10, tenant="a"))
    queue.pop()
    pushed(queue, sequence("b1", 1, tenant="b"), sequence("a2", 1, tenant="a"))
    assert popped(queue) == "b1a2"
    assert queue.remove("a2") is None


def test_the_longest_prefix_is_sought_among_the_first_few_only() -> None:
    config = PolicyConfig(kv_tokens=64, block_tokens=4, prefix_cache=True)
    memory = PagedKV(config)
    cached = sequence("warm", 8, block_keys=[1, 2])
    assert memory.reserve(cached, 8)
    memory.commit(cached, 8)
    for place, head in ((SCANNED_HEADS - 1, "hit"), (SCANNED_HEADS, "0")):
        queue = LongestPrefixFirst(memory)
        seqs = [sequence(str(i)) for i in range(place)]
        pushed(queue, *seqs, sequence("hit", 8, block_keys=[1, 3]))
        found = queue.head()
        assert found is not None
        assert found.request_id == head


def test_only_shipped_orders_that_cannot_change_have_a_stable_head() -> None:
    class Own(FairShare):
        """May have any order."""

    stable = [order for order in ORDERS if has_stable_head(queue_of(order))]
    assert stable == ["fcfs", "sjf", "priority", "edf", "fair"]
    assert not has_stable_head(Own())


def admission(**settings: object) -> AdmissionQueue:
    config = PolicyConfig(**{"kv_tokens": 64, "block_tokens": 4, "max_model_len": 32, **settings})  # type: ignore[arg-type]
    memory = PagedKV(config)
    return AdmissionQueue(memory, config, queue_in_order(memory, config))


def test_a_request_may_be_as_long_as_the_model_allows() -> None:
    queue = admission()
    assert queue.add(sequence("a", 30, 2)) is None
    assert queue.add(sequence("b", 30, 3)) == Refusal(
        "too_long", "33 tokens are more than the model length of 32"
    )
    assert queue._waiting.size == 1


def test_a_request_may_be_as_long_as_the_memory() -> None:
    queue = admission(kv_tokens=24)
    assert queue.add(sequence("a", 20, 5)) is None
    assert queue.add(sequence("b", 20, 6)) == Refusal(
        "too_long", "needs 25 KV tokens, the memory has 24 (6 blocks of 4)"
    )


def test_arrivals_are_numbered_from_one() -> None:
    queue = admission()
    seqs = [sequence(name) for name in "ab"]
    for seq in seqs:
        queue.add(seq)
    assert [seq.arrival_number for seq in seqs] == [1, 2]
    assert queue.next_arrival_number() == 3
    assert queue.next_arrival_number() == 4


@pytest.mark.parametrize(("limit_s", "late"), [(2.0, False), (1.999, True), (None, False)])
def test_a_request_is_late_when_it_waited_longer_than_its_limit(
    limit_s: float | None, late: bool
) -> None:
    queue = admission(shed_ttft_s=limit_s)
    seq = sequence("a", arrival_s=1.0)
    assert queue.is_late(seq, 3.0) == late
    assert [dropped.request_id for dropped, _ in queue.dropped] == (["a"] if late else [])


def has_run(field: str) -> Sequence:
    seq = sequence("ran", arrival_s=-99.0)
    setattr(seq, field, 1)
    return seq


@pytest.mark.parametrize("field", ["preemptions", "computed_tokens", "group"])
def test_a_request_that_was_served_in_part_is_not_turned_away(field: str) -> None:
    queue = admission(shed_ttft_s=1.0, queue_limit=0)
    seq = has_run(field)
    assert not queue.is_late(seq, 9.0)
    queue.add(seq)
    queue.enforce_limit()
    assert queue.dropped == []


def test_the_newest_beyond_the_limit_are_given_up() -> None:
    queue = admission(queue_limit=2, queue_order="sjf")
    for name, prompt in (("a", 9), ("b", 3), ("c", 5), ("d", 1)):
        assert not queue.over_limit() or name == "d"
        assert queue.is_full() == (queue._waiting.size >= 2)
        queue.add(sequence(name, prompt))
    assert queue.over_limit()
    assert queue.enforce_limit()
    assert [(seq.request_id, why) for seq, why in queue.dropped] == [
        ("c", Refusal("queue_full", "2 requests are waiting already")),
        ("d", Refusal("queue_full", "2 requests are waiting already")),
    ]
    assert (queue.is_full(), queue.over_limit()) == (True, False)
    assert not queue.enforce_limit()
    assert popped(queue._waiting) == "ba"


def test_a_limit_of_none_gives_up_all_that_wait() -> None:
    queue = admission(queue_limit=0)
    assert queue.is_full()
    queue.add(sequence("a"))
    assert queue.over_limit()
    assert not queue.enforce_limit()
    assert queue._waiting.size == 0


def test_without_a_limit_any_number_waits() -> None:
    queue = admission()
    for name in "abc":
        queue.add(sequence(name))
    assert (queue.is_full(), queue.over_limit(), queue.enforce_limit()) == (False, False, False)
