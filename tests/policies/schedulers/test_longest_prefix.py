"""Longest prefix first looks at the first few waiting sequences."""

from policies.config import PolicyConfig
from policies.kv.paged import PagedKV
from policies.schedulers.longest_prefix import SCANNED_HEADS, LongestPrefixFirst
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
