"""BurstGPT's columns, old and new."""

from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from tests.support.trace_rows import BURST_6, BURST_8, Write


def test_burstgpt_of_six_columns(write: Write) -> None:
    trace = read_trace(write(BURST_6))
    chat, api = "Conversation log", "API log"
    assert trace.requests == (
        Request("some:1", 0.0, 472, 18, model="ChatGPT", kind=chat, source_line=2),
        Request("some:2", 0.0, 30, 9, model="GPT-4", kind=api, source_line=3),
    )
    assert trace.clock_s == 1.0
    assert trace.notes == (
        "1 row whose total is not the sum",
        "1 failed row left out",
        "100.0% of rows share the stamp of the row before",
    )


def test_burstgpt_of_eight_columns_has_sessions(write: Write) -> None:
    trace = read_trace(write(BURST_8))
    fields = [(r.arrival_s, r.session_id, r.parent_id, r.turn, r.delay_s) for r in trace]
    assert fields == [
        (0.0, "s1", None, 0, None),
        (0.5, None, None, None, None),
        (30.0, "s1", "some:1", 1, 26.0),
        (30.5, "s2", None, 0, None),
        (34.5, "s2", "some:4", 1, 0.0),  # it came before the answer did
        (90.0, "s1", "some:3", 2, None),  # how long the one before took is not known
    ]
    assert trace.clock_s is None
    assert trace.notes == ("2 rows sent a delay after the parent: for closed-loop replay",)


def test_burstgpt_columns_are_found_by_name(write: Write) -> None:
    def swapped(row: str) -> str:
        return ",".join(reversed(row.split(",")))

    turned = "\n".join(map(swapped, BURST_8.splitlines()))
    assert read_trace(write(turned)) == read_trace(write(BURST_8))
