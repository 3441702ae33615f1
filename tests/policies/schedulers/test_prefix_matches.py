"""Matches are watched where the memory can know of every change, and sought anew elsewhere."""

from typing import Any

import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.contiguous import ContiguousKV
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.schedulers.longest_prefix import SoughtMatches, WatchedMatches, matches_in
from tests.support.scheduler_steps import sequence


class Own(PagedKV):
    """May answer anything."""


@pytest.mark.parametrize(
    ("memory", "settings", "kind"),
    [
        (PagedKV, {"prefix_cache": True}, WatchedMatches),
        (PagedKV, {"prefix_cache": True, "prefix_index": "hash"}, SoughtMatches),
        (PagedKV, {"prefix_cache": True, "host_cache_tokens": 64}, SoughtMatches),
        (PagedKV, {}, SoughtMatches),
        (Own, {"prefix_cache": True}, SoughtMatches),
        (ContiguousKV, {"kv": "contiguous"}, SoughtMatches),
    ],
)
def test_only_a_tree_alone_is_watched(
    memory: Any, settings: dict[str, Any], kind: type[object]
) -> None:
    assert type(matches_in(memory(PolicyConfig(**settings)))) is kind


def test_entries_that_no_longer_hold_do_not_gather() -> None:
    matches = matches_in(PagedKV(PolicyConfig(prefix_cache=True)))
    assert isinstance(matches, WatchedMatches)
    first = sequence("first", 8)
    matches.enter(first)
    for number in range(1_000):
        other = sequence(str(number), 8)
        other.arrival_number = 1 + number
        matches.enter(other)
        matches.leave(other)
    assert matches.longest() is first
    assert len(matches._heap) < 100
