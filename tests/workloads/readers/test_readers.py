"""The public formats beside Azure and Mooncake: what each row becomes, and what a bad one says."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gamma, spearmanr

from tests.support.paths import TRACES
from workloads.errors import TraceError
from workloads.generators.chaining import Chaining
from workloads.generators.parents import without_failed
from workloads.native import write_trace
from workloads.readers.incremental import Turn, whole_prompts
from workloads.reading import read_trace
from workloads.request import Request, RequestStatus
from workloads.statistics.statistics import prefix_statistics
from workloads.trace import Trace

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "some.trace"
        path.write_text(text)
        return path

    return write


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def changed(record: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (record | changes).items() if value != "absent"}


BURST_6 = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
5,GPT-4,30,9,40,API log
45,ChatGPT,0,0,0,Conversation log"""
BURST_8 = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
100.5,s1,4,GPT-4,10,20,30,Conversation log
101,,2,GPT-4,7,8,15,API log
130.5,s1,,GPT-4,40,5,45,Conversation log
131,s2,9.5,GPT-4,3,4,7,Conversation log
135,s2,1,GPT-4,9,2,11,Conversation log
190.5,s1,1,GPT-4,50,5,55,Conversation log"""  # noqa: E501


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


def chat(number: int, parent: int, ids: Sequence[int], **changes: Any) -> dict[str, Any]:
    record = {
        "chat_id": number,
        "parent_chat_id": parent,
        "timestamp": number + 0.25,
        "input_length": 16 * len(ids),
        "output_length": 3,
        "type": "text",
        "turn": 1 if parent == -1 else 2,
        "hash_ids": list(ids),
    }
    return changed(record, changes)


def test_bailian(write: Write) -> None:
    text = lines(chat(1, -1, [8, 9]), chat(2, 1, [8, 9, 9]), chat(5, -1, [9], type="file"))
    first, second, third = read_trace(write(text))
    assert first == Request("1", 1.25, 32, 3, (0, 1), 16, "1", turn=0, kind="text", source_line=1)
    assert second == Request(
        "2", 2.25, 48, 3, (0, 1, 2), 16, "1", "1", turn=1, kind="text", source_line=2
    )
    assert third == Request("5", 5.25, 16, 3, (3,), 16, "5", turn=0, kind="file", source_line=3)


def test_bailian_content_under_another_prefix_is_another_block(write: Write) -> None:
    text = lines(chat(1, -1, [7, 8]), chat(2, -1, [6, 8]), chat(3, -1, [7, 8]))
    one, other, again = (request.prefix_block_ids for request in read_trace(write(text)))
    assert one == again
    assert not set(one) & set(other)


def test_bailian_sessions_are_named_by_their_first_chat(write: Write) -> None:
    parents = {4: 3, 3: 1, 1: -1, 2: 1, 9: -1}  # children before their parents
    text = lines(*(chat(child, parent, [child]) for child, parent in parents.items()))
    sessions = {r.request_id: r.session_id for r in read_trace(write(text))}
    assert sessions == {"1": "1", "2": "1", "3": "1", "4": "1", "9": "9"}


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=12))
def test_chained_ids_are_equal_where_the_whole_prefix_is(prompts: list[list[int]]) -> None:
    chaining = Chaining()
    prefixes: dict[int, tuple[int, ...]] = {}
    for prompt in prompts:
        ids = chaining.chained(prompt)
        assert len(ids) == len(prompt)
        for end, block_id in enumerate(ids, 1):
            assert prefixes.setdefault(block_id, tuple(prompt[:end])) == tuple(prompt[:end])
    assert len(set(prefixes.values())) == len(prefixes)


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=12))
def test_chaining_chained_ids_changes_names_only(prompts: list[list[int]]) -> None:
    once, twice = Chaining(), Chaining()
    names: dict[int, int] = {}
    for prompt in prompts:
        ids = once.chained(prompt)
        for before, after in zip(ids, twice.chained(ids), strict=True):
            assert names.setdefault(before, after) == after
    assert len(set(names.values())) == len(names)


VIDUR = """arrived_at,num_prefill_tokens,num_decode_tokens
0.0,374,44
4.314,396,109
"""
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


def step(at_s: float, blocks: int, **changes: Any) -> dict[str, Any]:
    record = {
        "t": at_s,
        "type": "n",
        "model": "big",
        "in": 4 * blocks + 1,
        "out": 7,
        "hash_ids": list(range(1, blocks + 1)),
        "api_time": 2.0,
        "think_time": 3.0,
    }
    return changed(record, changes)


SUB_AGENT = {
    "t": 20.5,
    "type": "subagent",
    "agent_id": "agent_001",
    "duration_ms": 5500,
    "tool_tokens": 4,
    "system_tokens": 1,
    "requests": [step(0, 2, model="small", think_time=0.0), step(3, 3, model="small")],
}


def session(*requests: dict[str, Any], **changes: Any) -> dict[str, Any]:
    record = {
        "id": "s",
        "block_size": 4,
        "hash_id_scope": "local",
        "tool_tokens": 5,
        "system_tokens": 2,
        "requests": list(requests),
    }
    return changed(record, changes)


WEKA = session(step(0, 1, think_time=0.0), step(10, 2), SUB_AGENT, step(30, 3, think_time=18.0))


def test_weka_session(write: Write) -> None:
    trace = read_trace(write(json.dumps(WEKA)))
    assert trace.requests[:2] == (
        Request("s:0", 0.0, 5, 7, (1,), 4, "s", None, 0, None, 5, model="big", kind="n"),
        Request("s:1", 10.0, 9, 7, (1, 2), 4, "s", "s:0", 1, 3.0, 7, model="big", kind="n"),
    )
    assert [
        (r.request_id, r.arrival_s, r.parent_id, r.turn, r.delay_s, r.model) for r in trace
    ] == [
        ("s:0", 0.0, None, 0, None, "big"),
        ("s:1", 10.0, "s:0", 1, 3.0, "big"),
        ("s/2:0", 15.0, "s:1", 0, 3.0, "small"),  # 5.5 s before it reports, 3 s after s:1
        ("s/2:1", 18.0, "s/2:0", 1, 3.0, "small"),
        ("s:3", 30.0, "s:1", 2, 18.0, "big"),
    ]
    assert [r.session_id for r in trace] == ["s", "s", *["s/2"] * 2, "s"]
    assert [r.shared_prefix_tokens for r in trace] == [5, 7, 5, 5, 7]
    assert trace.notes == ("4 rows sent a delay after the parent: for closed-loop replay",)


def test_weka_session_written_on_many_lines(write: Write) -> None:
    plain = read_trace(write(json.dumps(WEKA)))
    assert read_trace(write(json.dumps(WEKA, indent=1))) == plain


def write_sessions(directory: Path, count: int) -> Path:
    for index in range(count):
        record = session(step(0, 2), step(10, 3), id=f"s{index:04}")
        (directory / f"s{index:04}.json").write_text(json.dumps(record))
    return directory


def test_weka_ids_stay_inside_their_file(tmp_path: Path) -> None:
    trace = read_trace(write_sessions(tmp_path, 3))
    ids = {name: set[int]() for name in ("s0000", "s0001", "s0002")}
    for request in trace:
        ids[str(request.session_id)].update(request.prefix_block_ids)
    assert [len(own) for own in ids.values()] == [3, 3, 3]
    assert len(set.union(*ids.values())) == 9


def test_weka_sessions_start_as_a_poisson_process(tmp_path: Path) -> None:
    trace = read_trace(write_sessions(tmp_path, 401), session_rate_per_s=2.0, seed=3)
    starts_s = np.array([r.arrival_s for r in trace if r.turn == 0])
    assert starts_s[0] == 0.0
    # the sum of 400 exponential gaps of mean 0.5 s is Gamma(400, 0.5 s)
    low_s, high_s = gamma(400, scale=0.5).interval(0.999)
    assert low_s < starts_s[-1] < high_s
    gaps_s = np.diff(starts_s)
    assert 0.8 < gaps_s.std() / gaps_s.mean() < 1.2
    assert trace.notes[0].startswith("401 sessions started at 2/s, a Poisson process (seed 3)")


def test_weka_starts_depend_on_the_seed_alone(tmp_path: Path) -> None:
    path = write_sessions(tmp_path, 4)
    assert read_trace(path, seed=1) == read_trace(path, seed=1)
    assert read_trace(path, seed=1) != read_trace(path, seed=2)


def test_weka_bad_sessions_and_requests_can_be_skipped(tmp_path: Path) -> None:
    write_sessions(tmp_path, 2)
    (tmp_path / "s0002.json").write_text('{"id": "s2"}')
    (tmp_path / "s0003.json").write_text(
        json.dumps(session(step(0, 1), step(1, 1, out=-1), step(2, 2), id="s3"))
    )
    trace = read_trace(tmp_path, max_bad_rows=2)
    assert len(trace) == 6
    links = {r.request_id: r.parent_id for r in trace if r.session_id == "s3"}
    assert links == {"s3:0": None, "s3:2": "s3:0"}
    assert trace.notes[-3:] == (
        "2 bad rows skipped",
        f'{tmp_path}/s0002.json:1: field \'block_size\': missing ({{"id": "s2"}})',
        f"{tmp_path}/s0003.json:1: field 'requests[1].out': negative (-1)",
    )


def test_a_directory_is_weka_alone(tmp_path: Path) -> None:
    write_sessions(tmp_path, 1)
    assert read_trace(tmp_path, format="weka") == read_trace(tmp_path)
    with pytest.raises(TraceError, match=r"only weka sessions come as one, not azure$"):
        read_trace(tmp_path, format="azure")
    with pytest.raises(TraceError, match="session rate"):
        read_trace(tmp_path, session_rate_per_s=0.0)


def turn(session_id: str, length: int, output: int, **more: Any) -> dict[str, Any]:
    lengths = {"input_length": length, "output_length": output}
    return {"session_id": session_id, **lengths, **more}


def test_mooncake_dialect_of_added_tokens(write: Write) -> None:
    text = lines(
        turn("a", 600, 100, timestamp=1000, hash_ids=[10, 11]),
        turn("b", 512, 5, timestamp=2000, hash_ids=[10]),
        turn("a", 400, 600, delay=2500, hash_ids=[12], priority=2),
        turn("a", 100, 9, delay=0, hash_ids=[13]),
    )
    trace = read_trace(write(text))
    first, other, second, third = trace
    assert first == Request("some:1", 1.0, 600, 100, (0, 1), 512, "a", turn=0, source_line=1)
    assert (other.prompt_tokens, other.prefix_block_ids, other.parent_id) == (512, (0,), None)
    assert second == Request(
        "some:3", 3.5, 1100, 600, (0, 1, 2), 512, "a", "some:1", 1, 2.5, priority=2, source_line=3
    )
    # 1,800 tokens are 4 blocks: the three before and its own; none is left for the answer
    assert (third.arrival_s, third.prompt_tokens, third.delay_s) == (3.5, 1800, 0.0)
    assert third.prefix_block_ids == (0, 1, 2, 3)
    assert trace.notes[0] == "2 rows of added tokens made whole prompts"
    assert trace.notes[-1] == "2 rows sent a delay after the parent: for closed-loop replay"


def test_mooncake_aliases_of_the_lengths(write: Write) -> None:
    text = lines({"timestamp": 7, "input_tokens": 9, "output_tokens": 4, "hash_ids": [5]})
    assert read_trace(write(text)).requests == (
        Request("some:1", 0.007, 9, 4, (5,), 512, source_line=1),
    )


def test_mooncake_blocks_of_an_answer_are_private(write: Write) -> None:
    text = lines(
        *(turn(name, 512, 1024, timestamp=0, hash_ids=[1]) for name in "ab"),
        *(turn(name, 512, 1, delay=1000, hash_ids=[2]) for name in "ab"),
    )
    *_, left, right = read_trace(write(text))
    assert len(left.prefix_block_ids) == len(right.prefix_block_ids) == 4
    assert set(left.prefix_block_ids) & set(right.prefix_block_ids) == {left.prefix_block_ids[0]}


@pytest.mark.parametrize(
    ("more", "arrival_s", "prompt_tokens", "delay_s"),
    [
        ({"delay": 1500}, 1.5, 170, 1.5),
        ({}, 0.0, 170, 0.0),  # at once
        ({"delay": 1500, "timestamp": 9000}, 9.0, 170, 1.5),
        ({"timestamp": 9000}, 9.0, 50, None),  # Mooncake's own meaning: a whole prompt
        ({"delay": 1500, "context_mode": "message_array_with_responses"}, 1.5, 50, 1.5),
    ],
)
def test_mooncake_second_turn(
    write: Write, more: dict[str, Any], arrival_s: float, prompt_tokens: int, delay_s: float | None
) -> None:
    trace = read_trace(write(lines(turn("a", 100, 20), turn("a", 50, 1, **more))))
    second = trace.requests[1]
    assert second.parent_id == "some:1"
    assert (second.arrival_s, second.prompt_tokens, second.delay_s) == (
        arrival_s,
        prompt_tokens,
        delay_s,
    )
    assert "1 session without a time started at 0" in trace.notes


turns = st.tuples(st.sampled_from("ab"), st.integers(1, 2000), st.integers(1, 2000))


@given(st.lists(turns, min_size=1, max_size=12))
def test_mooncake_sessions_accumulate(rows: list[tuple[str, int, int]]) -> None:
    added = [
        Request(str(n), 0.0, length, output, tuple(range(-(-length // 512))), 512, name)
        for n, (name, length, output) in enumerate(rows)
    ]
    held = dict.fromkeys("ab", 0)
    latest: dict[str | None, Request] = {}
    for request in whole_prompts([Turn(each, False, False) for each in added]):
        name, length, output = rows[int(request.request_id)]
        held[name] += length
        assert request.prompt_tokens == held[name]
        held[name] += output
        assert len(request.prefix_block_ids) == -(-request.prompt_tokens // 512)
        if parent := latest.get(name):
            shared = request.prefix_block_ids[: len(parent.prefix_block_ids)]
            assert shared == parent.prefix_block_ids
        latest[name] = request


def round_(index: int, *events: tuple[str, float], **changes: Any) -> dict[str, Any]:
    start = datetime(2026, 6, 1, 5, 40, tzinfo=UTC)
    stamps = [
        (kind, (start + timedelta(seconds=at_s)).isoformat(timespec="milliseconds"))
        for kind, at_s in events or [("user_message", 0.0)]
    ]
    record = {
        "session_id": "claude:1",
        "round_index": index,
        "model": "big",
        "project": "p",
        "input_tokens_total": 100 + index,
        "prefix_tokens": 50,
        "output_tokens": 9,
        "reasoning_output_tokens": None,
        "first_input_event_type": "user_message",
        "timing_events": [
            {"event_type": kind, "timestamp": stamp.replace("+00:00", "Z")}
            for kind, stamp in stamps
        ],
    }
    return changed(record, changes)


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


def burst(**cells: str) -> str:
    row = {"Timestamp": "5", "Model": "m", "Request tokens": "4", "Response tokens": "2"}
    row = row | {"Total tokens": "6", "Log Type": "API log", "Elapsed time": "1"} | cells
    return f"{','.join(row)}\n{','.join(row.values())}\n"


def vidur(prefill: str = "3", decode: str = "4", arrived: str = "0") -> str:
    return f"arrived_at,num_prefill_tokens,num_decode_tokens\n{arrived},{prefill},{decode}\n"


MALFORMED = [
    (
        "Timestamp,Model,Response tokens\n5,m,3\n",
        "1: field 'Request tokens': missing column (\"Timestamp,Model,Response tokens\")",
    ),
    (BURST_6 + "\n5,m\n", "5: field 'row': has 2 cells where the header has 6 (\"5,m\")"),
    (burst(Timestamp="noon"), "2: field 'Timestamp': not a number (\"noon\")"),
    (burst(Timestamp="nan"), "2: field 'Timestamp': not finite (NaN)"),
    (burst(Timestamp="-1"), "2: field 'Timestamp': negative (-1.0)"),
    (burst(**{"Request tokens": "4.0"}), "2: field 'Request tokens': not an integer (\"4.0\")"),
    (burst(**{"Request tokens": "0"}), "2: field 'Request tokens': must be at least 1 (0)"),
    (burst(**{"Response tokens": "-1"}), "2: field 'Response tokens': negative (-1)"),
    (burst(**{"Elapsed time": "inf"}), "2: field 'Elapsed time': not finite (Infinity)"),
    (burst(**{"Total tokens": "x"}), "2: field 'Total tokens': not an integer (\"x\")"),
    (
        "arrived_at,num_prefill_tokens\n0,1\n",
        "1: field 'num_decode_tokens': missing column (\"arrived_at,num_prefill_tokens\")",
    ),
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


def test_weka_duplicate_session(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps(session(step(0, 1))))
    with pytest.raises(TraceError) as raised:
        read_trace(tmp_path)
    assert str(raised.value) == f"{tmp_path}/b.json:1: field 'id': duplicate (\"s\")"


def test_a_broken_chat_can_be_skipped(write: Write) -> None:
    path = write(lines(chat(1, 9, [1]), chat(2, 1, [1, 2])))
    trace = read_trace(path, max_bad_rows=1)
    assert [(r.request_id, r.parent_id, r.session_id) for r in trace] == [("2", None, "2")]


def test_who_followed_a_failed_request_follows_the_one_before() -> None:
    def request(name: str, parent: str | None, delay_s: float | None, output: int) -> Request:
        status: RequestStatus = "ok" if output else "failed"
        return Request(name, 0.0, 1, output, parent_id=parent, delay_s=delay_s, status=status)

    kept = without_failed(
        [
            request("a", None, None, 1),
            request("b", "a", 2.0, 0),
            request("c", "b", 3.0, 0),
            request("d", "c", 5.0, 1),
            request("e", None, None, 0),
            request("f", "e", 7.0, 1),
        ]
    )
    assert [(r.request_id, r.parent_id, r.delay_s) for r in kept] == [
        ("a", None, None),
        ("d", "a", 10.0),
        ("f", None, None),
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


def shared(name: str) -> Path:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"{name} is not beside the repository")
    return path


@pytest.fixture(scope="module")
def weka() -> Trace:
    return read_trace(shared("agentic_weka"), keep_failed=True)


def figures(trace: Trace) -> list[str]:
    prompts = np.array([r.prompt_tokens for r in trace])
    outputs = np.array([r.output_tokens for r in trace])
    cells = [f"{len(trace):,}"]
    for tokens in (prompts, outputs):
        percentiles = np.percentile(tokens, (50, 90, 99, 100))
        cells += [f"{tokens.mean():,.1f}", *(f"{value:,.0f}" for value in percentiles)]
    return [*cells, f"{spearmanr(prompts, outputs).statistic:.3f}"]


TABLE = """
vidur/arxiv_summarization_rows_1_14129.csv.gz | 14,129 | 2,578.7 | 2,717 | 3,706 | 3,933 | 4,046 | 295.9 | 166 | 374 | 3,288 | 4,056 | -0.114
tracelab/example_round_trace.jsonl | 19 | 27,053.3 | 32,272 | 45,725 | 48,162 | 48,305 | 596.6 | 273 | 1,452 | 2,419 | 2,475 | 0.281
mooncake/arxiv_trace_window_93.jsonl | 93 | 7,694.8 | 6,182 | 16,603 | 30,325 | 32,385 | 200.1 | 35 | 552 | 787 | 1,048 | 0.011
"""  # noqa: E501
WEKA_ROW = "5,602 | 130,764.2 | 110,788 | 258,255 | 464,221 | 894,371 | 425.1 | 202 | 862 | 3,728 | 9,873 | 0.092"  # noqa: E501


@pytest.mark.parametrize("row", TABLE.strip().splitlines())
def test_reference_figures(row: str) -> None:
    name, *expected = (cell.strip() for cell in row.split("|"))
    assert figures(read_trace(shared(name))) == expected


def test_reference_figures_of_weka(weka: Trace) -> None:
    assert figures(weka) == [cell.strip() for cell in WEKA_ROW.split("|")]
    prefix = prefix_statistics(weka.requests)
    assert prefix is not None
    assert (prefix["blocks"], prefix["unique_blocks"]) == (11_443_187, 419_369)
    assert f"{prefix['hit_per_block']:.4f}" == "0.9634"
    assert f"{prefix['hit_per_token']:.4f}" == "0.9631"
    assert f"{prefix['full_block_hit_per_token']:.4f}" == "0.9631"
    first_blocks = {r.prefix_block_ids[0] for r in weka if r.prefix_block_ids}
    assert len(first_blocks) == 87


def test_weka_links_and_full_blocks(weka: Trace) -> None:
    by_id = {r.request_id: r for r in weka}
    assert len({r.session_id for r in weka}) == 80  # 79 files, one of them with a sub-agent
    assert sum(r.parent_id is None for r in weka) == 79
    assert all(len(r.prefix_block_ids) == r.prompt_tokens // 64 for r in weka)
    for request in weka:
        if request.parent_id is not None:
            assert by_id[request.parent_id].arrival_s <= request.arrival_s
    (agent_start,) = (r for r in weka if "/" in str(r.session_id) and r.turn == 0)
    launcher = by_id[str(agent_start.parent_id)]
    # it began when the answer that launched it was complete: 41.03 s after that was asked
    assert agent_start.arrival_s - launcher.arrival_s == pytest.approx(41.125)
    assert agent_start.delay_s == pytest.approx(0.095)


def test_weka_failed_requests_are_bridged(weka: Trace) -> None:
    answered = without_failed(weka.requests)
    assert len(answered) == 5_600
    assert sum(r.parent_id is None for r in answered) == 79


def test_bailian_re_keying_of_real_chained_ids_is_a_renaming() -> None:
    trace = read_trace(shared("mooncake/arxiv_trace_window_93.jsonl"))
    chaining = Chaining()
    renamed = [replace(r, prefix_block_ids=chaining.chained(r.prefix_block_ids)) for r in trace]
    assert prefix_statistics(renamed) == prefix_statistics(trace.requests)
