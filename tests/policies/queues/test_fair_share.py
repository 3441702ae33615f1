"""Fair share: what counts as service, and what a tenant that returns is lifted to."""

from servetwin.policies.queues.fair_share import FairShare
from tests.support.scheduler_steps import sequence
from tests.support.waiting_queues import popped, pushed


def test_service_costs_the_prompt_once_and_each_output_token_twice() -> None:
    """a has had 10 + 2 * 5 = 20; b comes before its second request below that, and not above."""
    for prompt, following in ((19, "b"), (21, "a")):
        queue = FairShare()
        first, other = sequence("a1", 10, 5, tenant="a"), sequence("b1", prompt, tenant="b")
        pushed(queue, first, other, sequence("a2", tenant="a"), sequence("b2", tenant="b"))
        assert [queue.pop(), queue.pop()] == [first, other]
        first.base_generated_tokens = 5
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
    assert queue.size == 0
    assert queue.head() is None
