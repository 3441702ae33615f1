"""What the report of a load test warns of before its figures."""

from typing import Any

import pytest

from servetwin.loadtest.report.load_warnings import load_warnings

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
    "doubts about tokens": ({"token_doubts": ["A", "B"]}, ["A", "B"]),
}


@pytest.mark.parametrize("name", TABLE)
def test_warnings(name: str) -> None:
    delivered, lines = TABLE[name]
    assert list(load_warnings(delivered)) == lines
