"""The orders of the waiting queue, one by one."""

from bisect import insort
from math import inf, nan
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from servetwin.policies.config import PolicyConfig, QueueOrder
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.queues.intake import queue_in_order
from servetwin.policies.queues.ranked_queue import UNUSED_SLACK, RankedQueue
from servetwin.policies.sequence import Sequence
from tests.support.counted_lines import lines_run
from tests.support.effort import examples
from tests.support.reference_queue import ReferenceQueue
from tests.support.scheduler_steps import sequence
from tests.support.waiting_queues import ORDERS, popped, pushed, queue_of


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
    queue.discard(seqs[1])
    assert queue.size == 3
    assert popped(queue) == ("dca" if order == "sjf" else "acd")


class Twins(RuleBasedStateMachine):
    """Every call goes to a shipped queue and to a plain list."""

    order: QueueOrder = "fcfs"

    checked: ClassVar[int] = 0
    """How often the laws were checked."""

    def __init__(self) -> None:
        super().__init__()
        memory = PagedKV(PolicyConfig(kv_tokens=400, block_tokens=4, prefix_cache=True))
        for family in range(3):
            warm = sequence("warm", 4 * family + 4, block_keys=[10 * family + j for j in range(3)])
            assert memory.reserve(warm, warm.prompt_tokens)
            memory.commit(warm, warm.prompt_tokens)
        config = PolicyConfig(queue_order=self.order)
        self.queues = (queue_in_order(memory, config), ReferenceQueue(self.order, memory))
        self.popped: list[Sequence] = []
        self.made = 0

    @rule(
        prompt=st.integers(1, 12),
        output=st.integers(1, 4),
        priority=st.integers(0, 2),
        tenant=st.sampled_from(["a", "b", "c", None]),
        deadline_s=st.sampled_from([1.0, 2.0, inf]),
    )
    def arrive(
        self, prompt: int, output: int, priority: int, tenant: str | None, deadline_s: float
    ) -> None:
        self.made += 1
        keys = [10 * priority + j for j in range(prompt // 4)]
        seq = Sequence(f"{self.made}", 0.0, prompt, output, keys, priority, tenant=tenant)
        seq.deadline_s, seq.arrival_number = deadline_s, self.made
        for queue in self.queues:
            queue.push(seq)

    @precondition(lambda self: self.queues[0].size)
    @rule()
    def pop(self) -> None:
        first, second = (queue.pop() for queue in self.queues)
        assert first is second
        self.popped.append(first)

    @precondition(lambda self: self.popped)
    @rule(data=st.data(), tokens=st.integers(1, 9))
    def end(self, data: st.DataObject, tokens: int) -> None:
        seq = data.draw(st.sampled_from(self.popped))
        self.popped.remove(seq)
        seq.base_generated_tokens = tokens
        for queue in self.queues:
            queue.served(seq)

    @precondition(lambda self: self.popped)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(self.popped))
        self.popped.remove(seq)
        seq.preemptions += 1
        for queue in self.queues:
            queue.push(seq)

    @precondition(lambda self: self.queues[0].size)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(list(self.queues[0])))
        for queue in self.queues:
            queue.discard(seq)

    @invariant()
    def both_are_alike(self) -> None:
        type(self).checked += 1
        fast, slow = self.queues
        assert fast.size == slow.size
        assert fast.head() is slow.head()
        assert set(fast) == set(slow)


SETTINGS = settings(max_examples=examples(50), stateful_step_count=60)


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_decides_as_a_plain_list(order: QueueOrder) -> None:
    machine: Any = type(f"Twins_{order}", (Twins,), {"order": order})
    run_state_machine_as_test(machine, settings=SETTINGS)
    assert machine.checked > 0


@pytest.mark.parametrize("order", ORDERS)
def test_to_come_back_into_the_middle_costs_no_scan(order: QueueOrder) -> None:
    lines = []
    for waiting in (300, 3_000):
        queue = queue_of(order)
        for number in range(waiting):
            queue.push(numbered(2 * number))
        back = [numbered(2 * (waiting // 2 + place) + 1) for place in range(20)]
        lines.append(lines_run(lambda queue=queue, back=back: [*map(queue.push, back)]))  # type: ignore[misc]
        assert queue.size == waiting + 20
    assert lines[1] <= 1.2 * lines[0]


class ByTokens(RankedQueue):
    """The tokens declared are the rank."""

    def rank(self, seq: Sequence) -> float:
        return seq.estimated_tokens


@pytest.mark.parametrize("ranks", [1, 3, 40, 1_000_000])
@given(seed=st.integers(0, 999), discards=st.sampled_from([0.1, 0.6, 0.9]))
@settings(max_examples=20)
def test_many_ranks_with_and_without_ties_are_a_sorted_list(
    ranks: int, seed: int, discards: float
) -> None:
    """More are discarded than a heap may keep; half of what is popped comes back."""
    queue, line, number = ByTokens(), list[tuple[float, int, Sequence]](), 0
    random = Random(seed)
    for wanted in [150, 20, 300, 0]:
        while len(line) != wanted:
            if len(line) < wanted and random.random() < 0.8:
                number += 1
                seq = numbered(number)
                seq.estimated_tokens = random.randrange(ranks)
                queue.push(seq)
                insort(line, (seq.estimated_tokens, number, seq))
            elif line and random.random() < discards:
                queue.discard(line.pop(random.randrange(len(line)))[2])
            elif line:
                first = line.pop(0)
                assert queue.pop() is first[2]
                if random.random() < 0.5 and len(line) < wanted:
                    queue.push(first[2])
                    line.insert(0, first)
            assert queue.size == len(line)
            assert queue.head() is (line[0][2] if line else None)
        assert sorted(seq.arrival_number for seq in queue) == sorted(n for _, n, _ in line)


def test_a_heap_holds_few_of_those_that_were_discarded() -> None:
    queue = ByTokens()
    for number in range(1_000):
        queue.push(numbered(number))
    for seq in list(queue)[10:]:
        queue.discard(seq)
    assert len(queue._heap) <= 2 * queue.size + UNUSED_SLACK
    assert popped(queue) == "".join(map(str, range(10)))


def test_a_rank_is_the_one_that_a_sequence_came_with() -> None:
    queue = ByTokens()
    seqs = [numbered(number) for number in range(3)]
    for seq in seqs:
        queue.push(seq)
        seq.estimated_tokens += 7
    queue.discard(seqs[1])
    assert popped(queue) == "02"


def test_a_rank_that_is_no_number_is_refused() -> None:
    class Mine(RankedQueue):
        def rank(self, seq: Sequence) -> float:
            return nan

    queue = Mine()
    with pytest.raises(ValueError, match="the rank of request 7 is not a number"):
        queue.push(numbered(7))
    assert (queue.size, queue.head()) == (0, None)


def numbered(number: int) -> Sequence:
    seq = sequence(str(number))
    seq.arrival_number = number
    return seq
