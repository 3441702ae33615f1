"""TraceLab's rounds."""

from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from tests.support.trace_rows import Write, lines, round_


def test_tracelab(write: Write) -> None:
    text = lines(
        round_(0, ("user_message", 20.0), ("text", 29.5), ("tool_call", 31.0)),
        round_(
            1,
            ("tool_result", 32.0),
            ("tool_result", 50.5),  # only now can the round be sent
            ("text", 60.0),
            first_input_event_type="tool_result",
            reasoning_output_tokens=4,
        ),
        round_(0, ("user_message", 21.0), session_id="codex:2", model="small"),
    )
    trace = read_trace(write(text))
    assert trace.requests == (
        Request(
            "some:1", 0.0, 100, 9, session_id="claude:1", turn=0, model="big",
            kind="user_message", tenant="p", source_line=1,
        ),
        Request(
            "some:3", 1.0, 100, 9, session_id="codex:2", turn=0, model="small",
            kind="user_message", tenant="p", source_line=3,
        ),
        Request(
            "some:2", 30.5, 101, 9, session_id="claude:1", parent_id="some:1", turn=1, delay_s=19.5,
            reasoning_tokens=4, model="big", kind="tool_result", tenant="p", source_line=2,
        ),
    )  # fmt: skip


def test_an_event_of_a_type_that_is_no_text_is_no_input(write: Write) -> None:
    record = round_(0, ("user_message", 0.0), ("tool_result", 2.0), ("tool_result", 5.0))
    record["timing_events"][2]["event_type"] = ["tool_result"]
    later = round_(1, ("user_message", 9.0))
    first, second = read_trace(write(lines(record, later)))
    assert second.arrival_s - first.arrival_s == 7.0
