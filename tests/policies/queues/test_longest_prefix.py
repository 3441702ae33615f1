"""Longest prefix first looks at the first few waiting sequences."""

import random
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig, PrefixIndex
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.queues.longest_prefix import SCANNED_HEADS, LongestPrefixFirst
from servetwin.policies.sequence import Sequence
from servetwin.workloads.request import Request
from tests.support.checked import request
from tests.support.random_runs import workloads
from tests.support.reference_runs import run_over_queues
from tests.support.scheduler_steps import sequence
from tests.support.waiting_queues import pushed


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


SMALL = PolicyConfig(
    kv_tokens=96,
    block_tokens=4,
    max_model_len=70,
    max_seqs=4,
    token_budget=16,
    prefix_cache=True,
    queue_order="longest-prefix",
)


@pytest.mark.parametrize("host_cache_tokens", [0, 32])
@pytest.mark.parametrize("index", ["radix", "blocks"])
@given(requests=workloads(), kv_tokens=st.sampled_from([72, 96, 160]))
def test_whole_runs_are_those_of_a_plain_list(
    index: PrefixIndex, host_cache_tokens: int, requests: list[Request], kv_tokens: int
) -> None:
    more = {"host_cache_tokens": host_cache_tokens, "kv_tokens": kv_tokens}
    assert_as_plain_list(replace(SMALL, prefix_index=index, **more), requests)  # type: ignore[arg-type]


def test_more_wait_than_are_compared() -> None:
    draw = random.Random(0)
    requests = [
        request(f"{i}", 0.02 * (i // 8), 30, 1 + i % 9, tuple(_keys(draw, i))) for i in range(400)
    ]
    assert_as_plain_list(SMALL, requests)


def _keys(draw: random.Random, number: int) -> list[int]:
    family, shared = draw.randrange(12), draw.randrange(8)
    return [100 * family + j if j < shared else 10_000 + 10 * number + j for j in range(8)]


def assert_as_plain_list(config: PolicyConfig, requests: list[Request]) -> None:
    fast, slow = (run_over_queues(config, requests, reference) for reference in (False, True))
    pd.testing.assert_frame_equal(fast.requests, slow.requests, check_exact=True)


def test_what_is_computed_and_what_is_evicted_changes_the_head() -> None:
    memory = PagedKV(PolicyConfig(kv_tokens=16, block_tokens=4, prefix_cache=True))
    queue = LongestPrefixFirst(memory)
    pushed(queue, sequence("a", 9, block_keys=[1, 2]), sequence("b", 9, block_keys=[3, 4]))
    assert queue.head() is named(queue, "a")
    use(memory, sequence("c", 8, block_keys=[3, 4]))
    assert queue.head() is named(queue, "b")
    use(memory, sequence("d", 16, block_keys=[5, 6, 7, 8]))
    assert queue.head() is named(queue, "a")


def use(memory: PagedKV, seq: Sequence) -> None:
    assert memory.reserve(seq, seq.prompt_tokens)
    memory.commit(seq, seq.prompt_tokens)
    memory.release(seq)


def named(queue: LongestPrefixFirst, name: str) -> Sequence:
    return next(seq for seq in queue if seq.request_id == name)
