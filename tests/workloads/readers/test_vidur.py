"""Vidur's columns."""

from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from tests.support.trace_rows import VIDUR, Write

VIDUR_LENGTHS = """num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio
3772,54,3826,69.85
2015,156,2000,12.9
"""


def test_vidur(write: Write) -> None:
    trace = read_trace(write(VIDUR))
    assert trace.requests == (
        Request("some:1", 0.0, 374, 44, source_line=2),
        Request("some:2", 4.314, 396, 109, source_line=3),
    )
    assert trace.notes == ()


def test_vidur_without_arrivals(write: Write) -> None:
    trace = read_trace(write(VIDUR_LENGTHS))
    assert trace.requests == (
        Request("some:1", 0.0, 3772, 54, source_line=2),
        Request("some:2", 0.0, 2015, 156, source_line=3),
    )
    assert trace.notes[:2] == (
        "no arrival times in the file: every request arrives at 0",
        "1 row whose total is not the sum",
    )
