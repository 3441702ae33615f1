"""What was cached of the prompts, what the load shares itself, and when that is a warning."""

from typing import Any

import pandas as pd
import pytest
from hypothesis import given

from servetwin.loadtest.report.prompt_cache import (
    CacheCounts,
    prompt_cache,
    prompt_cache_line,
    prompt_cache_warning,
    shared_share,
)
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.prefix_reuse import lru_hits
from servetwin.workloads.trace import Trace
from tests.support.prefix_chains import chained_traces


def four(shared_blocks: int = 1) -> Trace:
    """Requests of 100 tokens, whose first blocks of 25 are those of the first request."""
    ids = [tuple(range(shared_blocks)) for _ in range(4)]
    requests = (Request(f"r{n}", n, 100, 5, ids[n], 25) for n in range(4))
    return Trace(tuple(requests), "four")


def rows(cached: int, *, reported: bool = True, prompt_tokens: int = 100) -> pd.DataFrame:
    names = [f"r{n}" for n in range(4)]
    return pd.DataFrame({"request_id": names}).assign(
        status="finished", scheduled_s=[0.0, 1.0, 2.0, 3.0], sent_s=0.0,
        prompt_tokens=prompt_tokens, cached_tokens=cached, cached_reported=reported,
    )  # fmt: skip


@given(chained_traces())
def test_the_own_share_is_what_a_cache_of_everything_finds(trace: Trace) -> None:
    if any(request.prefix_block_ids for request in trace):
        ((_, tokens),) = lru_hits(trace.requests, [1.0])
        assert shared_share(list(trace)) == pytest.approx(tokens)
    else:
        assert shared_share(list(trace)) == 0


def test_requests_that_were_not_sent_share_nothing() -> None:
    requests = rows(0).assign(sent_s=[0.0, 1.0, float("nan"), float("nan")])
    assert prompt_cache(requests, four())["own_share"] == 25 / 200
    assert prompt_cache(requests.assign(sent_s=float("nan")), four())["own_share"] == 0


@pytest.mark.parametrize(
    ("cached", "shared_blocks", "warned"),
    [(0, 0, False), (1, 0, False), (2, 0, True), (18, 1, False), (25, 1, True), (100, 4, True)],
)
def test_more_than_the_load_shares_is_a_warning(
    cached: int, shared_blocks: int, warned: bool
) -> None:
    found = prompt_cache(rows(cached), four(shared_blocks))
    assert (found["cached_share"], found["said_by"]) == (cached / 100, "usage")
    assert (prompt_cache_warning(found) is not None) == warned


def test_what_the_server_adds_to_every_prompt_may_be_cached() -> None:
    """A chat template of 40 tokens, which the second request finds."""
    found = prompt_cache(rows(40, prompt_tokens=140), four(0))
    assert found["added_share"] == 40 / 140
    assert prompt_cache_warning(found) is None
    assert prompt_cache_warning(prompt_cache(rows(60, prompt_tokens=140), four(0)))


SOURCES: dict[str, tuple[pd.DataFrame, CacheCounts | None, tuple[Any, ...], str]] = {
    "usage": (rows(10), CacheCounts(1000, 900), (0.1, "usage"), "10.0% of their tokens were"),
    "metrics": (
        rows(0, reported=False), CacheCounts(1000, 900), (0.9, "metrics"),
        "(by the server's metrics)",
    ),
    "nothing looked up": (rows(0, reported=False), CacheCounts(0, 0), (None, None), "does not say"),
    "neither": (rows(0, reported=False), None, (None, None), "does not say"),
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_the_usage_is_asked_first_then_the_metrics(source: str) -> None:
    requests, metrics, expected, words = SOURCES[source]
    found = prompt_cache(requests, four(0), metrics)
    assert (found["cached_share"], found["said_by"]) == expected
    line = prompt_cache_line(found, "abc")
    assert line.startswith("prompts: salt abc; ")
    assert words in line


def test_a_load_without_answers_has_a_line() -> None:
    failed = rows(0).assign(status="failed")
    assert prompt_cache(failed, four(1))["cached_share"] is None


def test_real_prompts_share_what_they_begin_with_alike() -> None:
    system = "You are the assistant of a shop. " * 8  # 264 characters, four pieces of 64
    requests = [
        Request("a", 0.0, 100, 5, prompt=system + "Where is my order?"),
        Request("b", 1.0, 100, 5, prompt=({"role": "user", "content": system + "Hi."},)),
        Request("c", 2.0, 100, 5, prompt="Quite another one."),
    ]
    alike = 4 * 64 / len(system + "Hi.")
    assert shared_share(requests) == pytest.approx(alike / 3, abs=0.01)
