"""Gaps of a load test: what belongs to one, and how it is reported."""

from math import nan

import pandas as pd
import pytest

from servetwin.loadtest.report.outages import outage_lines, outages

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
