"""The public formats beside Azure and Mooncake: what each row becomes, and what a bad one says."""

import json
from pathlib import Path

import pytest

from servetwin.workloads.errors import TraceError
from servetwin.workloads.graphs.links import without_failed
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request, RequestStatus
from servetwin.workloads.trace import Trace
from tests.support.trace_rows import (
    BURST_6,
    BURST_8,
    SUB_AGENT,
    VIDUR,
    WEKA,
    Write,
    chat,
    figures,
    lines,
    round_,
    session,
    shared_trace,
    step,
    turn,
)


def burst(**cells: str) -> str:
    row = {"Timestamp": "5", "Model": "m", "Request tokens": "4", "Response tokens": "2"}
    row = row | {"Total tokens": "6", "Log Type": "API log", "Elapsed time": "1"} | cells
    return f"{','.join(row)}\n{','.join(row.values())}\n"


def vidur(prefill: str = "3", decode: str = "4", arrived: str = "0") -> str:
    return f"arrived_at,num_prefill_tokens,num_decode_tokens\n{arrived},{prefill},{decode}\n"


HEADERS = [
    (
        "burstgpt",
        "Timestamp,Model,Response tokens\n5,m,3\n",
        "1: field 'Request tokens': missing column (\"Timestamp,Model,Response tokens\")",
    ),
    (
        "vidur",
        "arrived_at,num_prefill_tokens\n0,1\n",
        "1: field 'num_decode_tokens': missing column (\"arrived_at,num_prefill_tokens\")",
    ),
]
MALFORMED = [
    (
        BURST_6 + "\n5,m\n",
        "5: field 'Request tokens': the row has 2 cells where the header has 6 (\"5,m\")",
    ),
    (burst(Timestamp="noon"), "2: field 'Timestamp': not a number (\"noon\")"),
    (burst(Timestamp="nan"), "2: field 'Timestamp': not finite (NaN)"),
    (burst(Timestamp="-1"), "2: field 'Timestamp': negative (-1.0)"),
    (burst(**{"Request tokens": "4.5"}), "2: field 'Request tokens': not an integer (\"4.5\")"),
    (burst(**{"Request tokens": "0"}), "2: field 'Request tokens': must be at least 1 (0)"),
    (burst(**{"Response tokens": "-1"}), "2: field 'Response tokens': negative (-1)"),
    (burst(**{"Elapsed time": "inf"}), "2: field 'Elapsed time': not finite (Infinity)"),
    (burst(**{"Total tokens": "x"}), "2: field 'Total tokens': not an integer (\"x\")"),
    (vidur(prefill="0"), "2: field 'num_prefill_tokens': must be at least 1 (0)"),
    (vidur(decode="1e3"), "2: field 'num_decode_tokens': not an integer (\"1e3\")"),
    (vidur(arrived="-2"), "2: field 'arrived_at': negative (-2.0)"),
    (vidur(arrived=""), "2: field 'arrived_at': not a number (\"\")"),
    (lines(chat(1, -1, [1], chat_id="absent", hash_ids=None)), "1: field 'chat_id': missing"),
    (lines(chat(1, -1, [1], chat_id="1")), "1: field 'chat_id': not an integer (\"1\")"),
    (lines(chat(1, -2, [1])), "1: field 'parent_chat_id': negative (-2)"),
    (lines(chat(1, -1, [1], timestamp=True)), "1: field 'timestamp': not a number (true)"),
    (lines(chat(1, -1, [1], input_length=0)), "1: field 'input_length': must be at least 1 (0)"),
    (lines(chat(1, -1, [1], turn=0)), "1: field 'turn': must be at least 1 (0)"),
    (lines(chat(1, -1, [1], type=3)), "1: field 'type': not a string (3)"),
    (lines(chat(1, -1, [1], hash_ids=[-1])), "1: field 'hash_ids': negative (-1)"),
    (lines(chat(1, -1, [1])) * 2, "2: field 'chat_id': duplicate (1)"),
    (lines(chat(1, -1, [1]), chat(2, 7, [1])), "2: field 'parent_chat_id': unknown (\"7\")"),
    (lines(chat(1, 1, [1])), "1: field 'parent_chat_id': cyclic (\"1\")"),
    (json.dumps(session(step(0, 1)))[:-1], "1: field 'row': not JSON"),
    (json.dumps(session(requests=7)), "1: field 'requests': not a list of objects (7)"),
    (json.dumps(session(requests=[7])), "1: field 'requests': not a list of objects ([7])"),
    (json.dumps(session(block_size=0)), "1: field 'block_size': must be at least 1 (0)"),
    (json.dumps(session(id=None)), "1: field 'id': must not be null (null)"),
    (
        json.dumps(session(hash_id_scope="global")),
        "1: field 'hash_id_scope': must be local (\"global\")",
    ),
    (
        json.dumps(session(step(0, 1), step(1, 1, t=-1))),
        "1: field 'requests[1].t': negative (-1)",
    ),
    (
        json.dumps(session(step(0, 1, hash_ids=[0.5]))),
        "1: field 'requests[0].hash_ids': not a list of integers ([0.5])",
    ),
    (
        json.dumps(session(step(0, 1), SUB_AGENT | {"requests": [step(0, 1, **{"in": True})]})),
        "1: field 'requests[1].requests[0].in': not an integer (true)",
    ),
    (
        json.dumps(session(step(0, 1), {"requests": []})),
        "1: field 'requests[1].t': missing ({\"requests\": []})",
    ),
    (lines(turn("a", 5, 5, delay=-1)), "1: field 'delay': negative (-1)"),
    (lines(turn("a", 5, 5, delay="1")), "1: field 'delay': not a number (\"1\")"),
    (lines(turn("a", 0, 5)), "1: field 'input_length': must be at least 1 (0)"),
    (
        lines({"timestamp": 1, "input_tokens": 0, "output_tokens": 1, "hash_ids": []}),
        "1: field 'input_tokens': must be at least 1 (0)",
    ),
    (
        lines(turn("a", 5, 5, context_mode="none")),
        "1: field 'context_mode': must be deltas_without_responses or"
        ' message_array_with_responses ("none")',
    ),
    (
        lines(round_(0, timing_events=[])),
        "1: field 'timing_events': not a list of events ([])",
    ),
    (
        lines(round_(0, timing_events=[{"timestamp": "yesterday"}])),
        "1: field 'timing_events[0].timestamp': not a time like 2023-11-16 18:15:46.6805900"
        ' ("yesterday")',
    ),
    (
        lines(round_(0, timing_events=[{}])),
        "1: field 'timing_events[0].timestamp': not a string (null)",
    ),
    (lines(round_(1), round_(1)), "2: field 'round_index': must rise within its session (1)"),
    (lines(round_(0, session_id=5)), "1: field 'session_id': not a string (5)"),
    (
        lines(round_(0, input_tokens_total=1.5)),
        "1: field 'input_tokens_total': not an integer (1.5)",
    ),
    (
        "TIMESTAMP,ContextTokens,GeneratedTokens,NumImages\n2024-05-10 00:00:00,1,1,x\n",
        "2: field 'NumImages': not an integer (\"x\")",
    ),
]


@pytest.mark.parametrize(("content", "message"), MALFORMED)
def test_malformed_row(write: Write, content: str, message: str) -> None:
    path = write(content)
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    assert str(raised.value).startswith(f"{path}:{message}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("name", "content", "message"), HEADERS)
def test_a_reader_that_was_named_wants_all_of_its_columns(
    write: Write, name: str, content: str, message: str
) -> None:
    path = write(content)
    with pytest.raises(TraceError) as raised:
        read_trace(path, format=name)
    assert str(raised.value) == f"{path}:{message}"


def test_who_followed_a_failed_request_follows_the_one_before() -> None:
    def request(name: str, parent: str | None, delay_s: float | None, output: int) -> Request:
        status: RequestStatus = "ok" if output else "failed"
        parents = tuple(parent or "")
        return Request(name, 0.0, 1, output, parent_ids=parents, delay_s=delay_s, status=status)

    kept = without_failed(
        [
            request("a", None, None, 1),
            request("b", "a", 2.0, 0),
            request("c", "b", 3.0, 0),
            request("d", "c", 5.0, 1),
            request("e", None, None, 0),
            request("f", "e", 7.0, 1),
            request("g", "cd", 9.0, 1),
        ]
    )
    assert [(r.request_id, r.parent_ids, r.delay_s) for r in kept] == [
        ("a", (), None),
        ("d", ("a",), 10.0),
        ("f", (), None),
        ("g", ("a", "d"), 9.0),
    ]


def test_failed_rows_can_be_kept(write: Write) -> None:
    trace = read_trace(write(BURST_6), keep_failed=True)
    assert [(r.prompt_tokens, r.status) for r in trace] == [(472, "ok"), (30, "ok"), (0, "failed")]


@pytest.mark.parametrize(
    "text",
    [
        BURST_6,
        BURST_8,
        VIDUR,
        json.dumps(WEKA),
        lines(chat(1, -1, [8, 9]), chat(2, 1, [8, 9, 9])),
        lines(turn("a", 600, 10, hash_ids=[1, 2]), turn("a", 600, 10, delay=5, hash_ids=[3])),
        lines(round_(0), round_(1, ("user_message", 9.0))),
    ],
    ids=["burst6", "burst8", "vidur", "weka", "bailian", "mooncake", "tracelab"],
)
def test_what_was_read_is_written_and_read_again(tmp_path: Path, write: Write, text: str) -> None:
    trace = read_trace(write(text), keep_failed=True)
    write_trace(trace, tmp_path / "ours.jsonl")
    again = read_trace(tmp_path / "ours.jsonl", keep_failed=True)
    assert again.requests == trace.requests
    closed_loop = [note for note in again.notes if "closed-loop" in note]
    assert closed_loop == [note for note in trace.notes if "closed-loop" in note]


@pytest.mark.parametrize("name", ["chat_id", "round_index", "requests", "hash_ids", "Timestamp"])
def test_a_format_is_seen_by_keys_not_by_values(tmp_path: Path, name: str) -> None:
    trace = Trace((Request("a", 0.0, 5, 2, kind=name, modal={name: 1}),), name)
    write_trace(trace, tmp_path / "ours.jsonl")
    assert read_trace(tmp_path / "ours.jsonl") == trace


TABLE = """
vidur/arxiv_summarization_rows_1_14129.csv.gz | 14,129 | 2,578.7 | 2,717 | 3,706 | 3,933 | 4,046 | 295.9 | 166 | 374 | 3,288 | 4,056 | -0.114
tracelab/example_round_trace.jsonl | 19 | 27,053.3 | 32,272 | 45,725 | 48,162 | 48,305 | 596.6 | 273 | 1,452 | 2,419 | 2,475 | 0.281
mooncake/arxiv_trace_window_93.jsonl | 93 | 7,694.8 | 6,182 | 16,603 | 30,325 | 32,385 | 200.1 | 35 | 552 | 787 | 1,048 | 0.011
"""  # noqa: E501


@pytest.mark.parametrize("row", TABLE.strip().splitlines())
def test_reference_figures(row: str) -> None:
    name, *expected = (cell.strip() for cell in row.split("|"))
    assert figures(shared_trace(name)) == expected
