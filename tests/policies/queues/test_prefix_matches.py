"""Matches are watched where the memory can know of every change, and sought anew elsewhere."""

from typing import Any

import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.contiguous import ContiguousKV
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.queues.longest_prefix import PrefixMatches
from tests.support.scheduler_steps import sequence


class Own(PagedKV):
    """May answer anything."""


@pytest.mark.parametrize(
    ("memory", "settings", "is_watched"),
    [
        (PagedKV, {"prefix_cache": True}, True),
        (PagedKV, {"prefix_cache": True, "prefix_index": "blocks"}, False),
        (PagedKV, {"prefix_cache": True, "host_cache_tokens": 64}, False),
        (PagedKV, {}, False),
        (Own, {"prefix_cache": True}, False),
        (ContiguousKV, {"kv": "contiguous"}, False),
    ],
)
def test_only_a_tree_alone_is_watched(
    memory: Any, settings: dict[str, Any], is_watched: bool
) -> None:
    matches = PrefixMatches(memory(PolicyConfig(**settings)))
    assert (matches._watch is not None) == is_watched


def test_entries_that_no_longer_hold_do_not_gather() -> None:
    matches = PrefixMatches(PagedKV(PolicyConfig(prefix_cache=True)))
    assert matches._watch is not None
    first = sequence("first", 8)
    matches.enter(first)
    for number in range(1_000):
        other = sequence(str(number), 8)
        other.arrival_number = 1 + number
        matches.enter(other)
        matches.leave(other)
    assert matches.longest() is first
    assert len(matches._heap) < 100
