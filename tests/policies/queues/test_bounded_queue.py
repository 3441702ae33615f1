"""A queue with a limit gives up the newest, whatever the order; whole runs are as with lists."""

from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import WaitingQueue
from servetwin.policies.registry import MEMORIES
from servetwin.policies.schedulers.prefill_first import PrefillFirst
from servetwin.workloads.request import Request
from tests.support.random_runs import policies, workloads
from tests.support.reference_queue import ReferenceQueue
from tests.support.reference_runs import run_over_queues
from tests.support.scheduler_steps import sequence


@pytest.mark.parametrize("batching", ["static", "continuous", "prefill-first", "chunked"])
@given(data=st.data(), requests=workloads(), limit=st.sampled_from([None, 0, 2, 6]))
def test_whole_runs_are_those_of_plain_lists(
    batching: str, data: st.DataObject, requests: list[Request], limit: int | None
) -> None:
    drawn = replace(data.draw(policies(batching)), adapter_slots=0, adapter_tokens=0)
    config = replace(drawn, queue_limit=limit)  # of queues by any order
    fast, slow = (run_over_queues(config, requests, reference) for reference in (False, True))
    pd.testing.assert_frame_equal(fast.requests, slow.requests, check_exact=True)
    assert fast.pauses.equals(slow.pauses)


def test_an_order_without_discard_is_bounded_too() -> None:
    class Own(PrefillFirst):
        def build_queue(self, config: PolicyConfig) -> WaitingQueue:
            return ReferenceQueue("fcfs")

    config = PolicyConfig(queue_limit=1)
    scheduler = Own(MEMORIES.build("paged", config), config)
    for name in "abc":
        scheduler.add(sequence(name))
    scheduler.intake.enforce_limit()
    assert [seq.request_id for seq, _ in scheduler.dropped] == ["b", "c"]


def test_the_newest_that_has_not_run_goes_first() -> None:
    config = PolicyConfig(queue_limit=0)
    scheduler = PrefillFirst(MEMORIES.build("paged", config), config)
    for number, name in enumerate("abcd"):
        seq = sequence(name)
        seq.preemptions = int(number == 3)
        scheduler.add(seq)
    scheduler.abort("b")
    scheduler.intake.enforce_limit()
    assert [seq.request_id for seq, _ in scheduler.dropped] == ["a", "c"]
    assert [seq.request_id for seq in scheduler.waiting()] == ["d"]
