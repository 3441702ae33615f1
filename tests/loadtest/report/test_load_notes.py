"""What a load test warns of, and what it advises."""

from typing import Any

import pytest

from servetwin.loadtest.report.load_notes import delivered_line, hint, load_warnings

HINTS: list[tuple[dict[str, str], str | None]] = [
    ({"no_token": "no event with text; the body begins '<!doctype html>'"}, "web page"),
    ({"no_token": "no event with text; the body begins 'data: {}'"}, "--dialect"),
    ({"http_4xx": "HTTP 400: Unrecognized request argument: ignore_eos"}, "--no-force-length"),
    ({"http_4xx": "HTTP 401: no"}, "--api-key-env"),
    ({"http_4xx": "HTTP 404: Not Found"}, "--api"),
    ({"http_4xx": "HTTP 400: maximum context length is 4096"}, "--on-too-long clip"),
    ({"http_3xx": "HTTP 302: "}, "redirects"),
    ({"timeout": "no complete answer within 600 s"}, "--timeout"),
    ({"connect": "refused"}, "still running"),
    ({"http_5xx": "HTTP 500: boom"}, None),
    ({"http_4xx": "HTTP 400: prompt is empty"}, None),
    ({}, None),
]


@pytest.mark.parametrize(("messages", "advice"), HINTS)
def test_hints(messages: dict[str, str], advice: str | None) -> None:
    found = hint(messages)
    assert found is None if advice is None else advice in str(found)


TABLE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "all is well": ({"limited_by": [], "resent": 0, "not_sent": 0, "in_flight": 0}, []),
    "a client that is late": (
        {"limited_by": ["lag p99 9.0 ms", "CPU 99%"]},
        ["CLIENT LIMITED: the latencies below include the client's own (lag p99 9.0 ms; CPU 99%)"],
    ),
    "a lost process": (
        {"lost_processes": 1, "processes": 3},
        ["1 of 3 processes of the load test died"],
    ),
    "closed connections": (
        {"resent": 2},
        ["2 requests were sent twice: the server was closing their connection"],
    ),
    "an early end": (
        {"not_sent": 3, "in_flight": 1},
        [
            "ENDED EARLY: 3 requests were not sent, 1 were in flight; they are in none of the "
            "figures below"
        ],
    ),
    "an interrupted one": (
        {"interrupted": True, "stopped": None, "not_sent": 3, "in_flight": 1},
        ["CUT OFF: interrupted; 3 requests were not sent, 1 were in flight"],
    ),
    "one that was killed": (
        {"interrupted": True, "stopped": "killed after 56 of 400 requests had ended"},
        ["CUT OFF: killed after 56 of 400 requests had ended"],
    ),
    "doubts about tokens": ({"token_doubts": ["A", "B"]}, ["A", "B"]),
}


@pytest.mark.parametrize("name", TABLE)
def test_warnings(name: str) -> None:
    delivered, lines = TABLE[name]
    assert list(load_warnings(delivered)) == lines


@pytest.mark.parametrize(("processes", "named"), [(1, False), (2, True)])
def test_several_processes_are_named(processes: int, named: bool) -> None:
    assert (f"{processes} processes" in delivered_line({"processes": processes})) is named
