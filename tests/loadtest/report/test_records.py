"""The verdict on the client: does it limit the load?"""

from math import nan

import numpy as np
import pandas as pd
import pytest

from servetwin.loadtest.report.records import delivered, outage_lines, outages


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
