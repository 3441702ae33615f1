"""Azure's columns and time stamps."""

import pytest

from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from tests.support.trace_rows import AZURE, Write


def test_azure(write: Write) -> None:
    trace = read_trace(write(AZURE))
    assert trace.requests == (
        Request("some:1", 0.0, 374, 44, source_line=2),
        Request("some:2", 4.314579, 396, 109, source_line=3),
    )
    assert trace.notes == ("1 failed row left out",)


@pytest.mark.parametrize(
    ("stamp", "arrival_s"),
    [
        ("2024-05-10 00:00:01.1234567", 1.1234567),
        ("2024-05-10 00:00:01.123456+00:00", 1.123456),
        ("2024-05-10T00:00:01Z", 1.0),
        ("2024-05-10 02:00:01+02:00", 1.0),
    ],
)
def test_azure_stamps(write: Write, stamp: str, arrival_s: float) -> None:
    trace = read_trace(
        write(f"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,1,1\n{stamp},1,1\n")
    )
    assert trace.requests[1].arrival_s == arrival_s


def test_azure_columns_are_found_by_name(write: Write) -> None:
    trace = read_trace(
        write("NumImages,GeneratedTokens,TIMESTAMP,ContextTokens\n2,5,2024-05-10 00:00:00,9\n")
    )
    assert trace.requests == (Request("some:1", 0.0, 9, 5, modal={"images": 2}, source_line=2),)
