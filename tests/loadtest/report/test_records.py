"""Records: does the client limit the load, and what did the prefix cache know?"""

from math import nan
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from servetwin.loadtest.plan.schedule import ScheduledRequest
from servetwin.loadtest.report.load_notes import (
    CacheCounts,
    prompt_cache,
    prompt_cache_line,
    prompt_cache_warning,
    shared_share,
)
from servetwin.loadtest.report.records import delivered, outage_lines, outages
from servetwin.loadtest.report.rows import Sending, request_rows
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.statistics import lru_hits
from servetwin.workloads.trace import Trace
from tests.support.loadtest_server import event
from tests.support.prefix_chains import chained_traces


@pytest.mark.parametrize(
    ("lag_s", "oversleep_s", "ttft_s", "tpot_s", "cpu_share", "limited_by"),
    [
        (0.001, 0.001, 0.1, 0.01, 0.25, []),
        (0.021, 0.001, 0.1, 0.01, 0.25, ["schedule lag p99 21 ms, over 20 ms"]),
        (0.021, 0.001, 3.0, 0.01, 0.25, []),
        (0.031, 0.001, 3.0, 0.01, 0.25, ["schedule lag p99 31 ms, over 30 ms"]),
        (0.001, 0.004, 3.0, 0.001, 0.25, []),
        (0.001, 0.006, 3.0, 0.001, 0.25, ["event loop late p99 6 ms, over 5 ms"]),
        (0.001, 0.011, 3.0, 0.01, 0.25, ["event loop late p99 11 ms, over 10 ms"]),
        (0.001, 0.019, 3.0, 0.05, 0.25, []),
        (0.001, 0.021, 3.0, 0.05, 0.25, ["event loop late p99 21 ms, over 20 ms"]),
        (0.001, 0.021, 3.0, np.nan, 0.25, ["event loop late p99 21 ms, over 20 ms"]),
        (0.001, 0.001, 0.1, 0.01, 0.91, ["CPU 91%"]),
    ],
)
def test_the_verdict_on_the_client(
    lag_s: float,
    oversleep_s: float,
    ttft_s: float,
    tpot_s: float,
    cpu_share: float,
    limited_by: list[str],
) -> None:
    found = delivered(sent_late(lag_s, ttft_s, tpot_s), [oversleep_s] * 5, cpu_share)
    assert found["verdict"] == ("client limited" if limited_by else "client ok")
    assert found["limited_by"] == limited_by
    assert found["offered_per_s"] == 1.0
    assert found["sent_per_s"] == pytest.approx(1.0)
    assert found["client_cpu_share"] == cpu_share


def test_nothing_is_said_of_a_client_that_sent_nothing() -> None:
    found = delivered(sent_late(np.nan, np.nan, np.nan), [0.001], 0.99)
    assert (found["verdict"], found["limited_by"]) == ("nothing sent", [])
    assert found["sent_per_s"] is None


def sent_late(lag_s: float, ttft_s: float, tpot_s: float) -> pd.DataFrame:
    scheduled = np.array([1.0, 2.0, 3.0])
    columns = {"scheduled_s": scheduled, "sent_s": scheduled + lag_s, "error": None}
    return pd.DataFrame({**columns, "ttft_s": ttft_s, "tpot_s": tpot_s})


REFUSED, BROKEN = "connect", "broken_stream"


def requests(*errors: str | None, never_sent: int = 0) -> pd.DataFrame:
    """One request a second, by its error."""
    sent_s = [*map(float, range(len(errors))), *[nan] * never_sent]
    return pd.DataFrame({"sent_s": sent_s, "error": [*errors, *["cancelled"] * never_sent]})


GAPS: dict[str, tuple[tuple[str | None, ...], list[tuple[float, float | None, int]]]] = {
    "none": ((None, "http_5xx", "timeout", None), []),
    "broken streams alone": ((None, BROKEN, BROKEN, None), []),
    "one": ((None, REFUSED, REFUSED, None, None), [(1, 3, 2)]),
    "a stream broke before": ((None, BROKEN, REFUSED, None), [(1, 3, 2)]),
    "an error is an answer": ((None, REFUSED, "http_5xx", REFUSED), [(1, 2, 1), (3, None, 1)]),
    "to the end": ((None, REFUSED, REFUSED), [(1, None, 2)]),
    "from the start": ((REFUSED, None), [(0, 1, 1)]),
    "nothing was sent": ((), []),
}


@pytest.mark.parametrize("gap", GAPS)
def test_a_gap_goes_from_the_first_refusal_to_the_next_connection(gap: str) -> None:
    errors, expected = GAPS[gap]
    found = outages(requests(*errors, never_sent=3))
    assert [tuple(outage.values()) for outage in found] == expected


def test_the_order_is_that_of_the_sends() -> None:
    """Records of followers stand after those of the roots."""
    mixed = requests(None, REFUSED, None, REFUSED).iloc[[2, 3, 0, 1]]
    assert [outage["from_s"] for outage in outages(mixed)] == [1, 3]


def test_many_gaps_are_few_lines() -> None:
    found = outages(requests(*[REFUSED, None] * 5, REFUSED, REFUSED))
    assert list(outage_lines(found)) == [
        "NO CONNECTION from 0.00 s to 1.00 s: 1 request lost",
        "NO CONNECTION from 2.00 s to 3.00 s: 1 request lost",
        "NO CONNECTION from 4.00 s to 5.00 s: 1 request lost",
        "NO CONNECTION 3 more times: 4 requests lost",
    ]
    (line,) = outage_lines(found[-1:])
    assert line == "NO CONNECTION from 10.00 s to the end: 2 requests lost"


KEY = "sk-very-secret-0123456789"


def test_the_header_of_one_request_is_no_name_of_an_answer() -> None:
    request = Request("r", 0.0, 5, 1, headers={"X-Key": KEY})
    answer = event(id=f"cmpl-{KEY}", choices=[{"text": "a", "finish_reason": "stop"}])
    sending = Sending(0, [(1, answer)], send=ScheduledRequest(0.0, request, b""))
    rows, _ = request_rows([sending], 0, "")
    assert rows[0]["response_id"] == "cmpl-***"


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
