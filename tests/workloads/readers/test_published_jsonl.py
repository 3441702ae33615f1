"""Published lines: Bailian, LLMServingSim, Mooncake, Tracelab."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.chaining import Chaining
from servetwin.workloads.readers.mooncake import Turn, whole_prompts
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.statistics import prefix_statistics
from tests.support.trace_rows import Write, chat, lines, round_, shared_trace, turn


def test_bailian(write: Write) -> None:
    text = lines(chat(1, -1, [8, 9]), chat(2, 1, [8, 9, 9]), chat(5, -1, [9], type="file"))
    first, second, third = read_trace(write(text))
    assert first == Request("1", 1.25, 32, 3, (0, 1), 16, "1", turn=0, kind="text", source_line=1)
    assert second == Request(
        "2", 2.25, 48, 3, (0, 1, 2), 16, "1", ("1",), turn=1, kind="text", source_line=2
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


def test_a_broken_chat_can_be_skipped(write: Write) -> None:
    path = write(lines(chat(1, 9, [1]), chat(2, 1, [1, 2])))
    trace = read_trace(path, max_bad_rows=1)
    assert [(r.request_id, r.parent_ids, r.session_id) for r in trace] == [("2", (), "2")]


def test_bailian_re_keying_of_real_chained_ids_is_a_renaming() -> None:
    trace = shared_trace("mooncake/arxiv_trace_window_93.jsonl")
    chaining = Chaining()
    renamed = [replace(r, prefix_block_ids=chaining.chained(r.prefix_block_ids)) for r in trace]
    assert prefix_statistics(renamed) == prefix_statistics(trace.requests)


IDS = list(range(40))


def flat(prompt: list[int], answer: list[int], arrival_ns: int) -> dict[str, object]:
    return {
        "input_toks": len(prompt), "output_toks": len(answer), "arrival_time_ns": arrival_ns,
        "input_tok_ids": prompt, "output_tok_ids": answer,
    }  # fmt: skip


def test_prompts_share_the_blocks_of_equal_token_ids(write: Write) -> None:
    other = [*IDS[:16], 99, *IDS[17:]]
    path = write(
        lines(
            flat(IDS[:33], IDS[33:], 0),
            flat(IDS, [7] * 9, 2_500_000_000),
            flat(other, [7], 3 * 10**9),
        )
    )
    first, second, third = read_trace(path)
    assert first == Request(f"{path.stem}:1", 0.0, 33, 7, (0, 1), 16, source_line=1), (
        "the answer ends before the third block"
    )
    assert second.arrival_s == 2.5
    assert (second.prefix_block_ids, second.answer_block_ids) == ((0, 1), (2,))
    assert third.prefix_block_ids[0] == 0
    assert third.prefix_block_ids[1] not in (0, 1, 2)


def test_a_call_of_a_session_follows_the_one_before_it_when_its_tool_is_done(write: Write) -> None:
    call = {"input_toks": 20, "output_toks": 4, "tool_duration_ns": 1_500_000_000}
    session = {"session_id": "a", "arrival_time_ns": 10**9, "sub_requests": [call, call, call]}
    calls = read_trace(write(lines(session)))
    assert [(r.request_id, r.parent_ids, r.delay_s, r.arrival_s) for r in calls] == [
        ("a:0", (), None, 1.0), ("a:1", ("a:0",), 1.5, 2.5), ("a:2", ("a:1",), 1.5, 4.0),
    ]  # fmt: skip
    assert {(r.session_id, r.prefix_block_ids, r.block_tokens) for r in calls} == {("a", (), None)}


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"input_toks": 2, "output_toks": 1, "arrival_time_ns": 0, "input_tok_ids": [1, 2, 3]},
         r":1: field 'input_tok_ids': 3 ids of 2 tokens"),
        ({"session_id": "a", "arrival_time_ns": 0, "sub_requests": [{"input_toks": 3}]},
         r":1: field 'sub_requests\[0\].output_toks': missing"),
        ({"session_id": "a", "arrival_time_ns": 0, "sub_requests": 3}, "not a list of objects"),
        ({"arrival_time_ns": 0, "sub_requests": []}, "field 'session_id': not a string"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(write: Write, record: dict[str, object], says: str) -> None:
    with pytest.raises(TraceError, match=says):
        read_trace(write(lines(record)))


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
    assert (other.prompt_tokens, other.prefix_block_ids, other.parent_ids) == (512, (0,), ())
    assert second == Request(
        "some:3",
        3.5,
        1100,
        600,
        (0, 1, 2),
        512,
        "a",
        ("some:1",),
        1,
        2.5,
        priority=2,
        source_line=3,
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
    assert second.parent_ids == ("some:1",)
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
            "some:2", 30.5, 101, 9, session_id="claude:1", parent_ids=("some:1",), turn=1,
            delay_s=19.5, reasoning_tokens=4, model="big", kind="tool_result", tenant="p",
            source_line=2,
        ),
    )  # fmt: skip


def test_an_event_of_a_type_that_is_no_text_is_no_input(write: Write) -> None:
    record = round_(0, ("user_message", 0.0), ("tool_result", 2.0), ("tool_result", 5.0))
    record["timing_events"][2]["event_type"] = ["tool_result"]
    later = round_(1, ("user_message", 9.0))
    first, second = read_trace(write(lines(record, later)))
    assert second.arrival_s - first.arrival_s == 7.0


def test_rows_of_agents_wait_for_each_other(write: Write) -> None:
    """Blocks are of 64 tokens here, as every prompt has as many ids as it has such blocks."""
    rows = (
        {"request_id": "plan", "session_id": "lead", "input_length": 100, "output_length": 5,
         "hash_ids": [1, 2], "timestamp": 1500.5},
        {"request_id": "w1", "session_id": "1", "input_length": 70, "output_length": 5,
         "hash_ids": [7, 8], "wait_for": ["plan"], "delay": 250},
        {"request_id": "w2", "session_id": "2", "input_length": 70, "output_length": 5,
         "hash_ids": [7, 9], "wait_for": ["plan"], "tool_wait_ms": 100},
        {"request_id": "join", "session_id": "lead", "input_length": 190, "output_length": 5,
         "hash_ids": [1, 2, 3], "wait_for": ["plan", "w1", "w2"], "delay": 10, "tool_wait_ms": 20},
    )  # fmt: skip
    requests = read_trace(write(lines(*rows))).requests
    assert {r.block_tokens for r in requests} == {64}
    assert [(r.request_id, r.turn, r.parent_ids, r.delay_s) for r in requests] == [
        ("plan", 0, (), None),
        ("w2", 0, ("plan",), 0.1),
        ("w1", 0, ("plan",), 0.25),
        ("join", 1, ("plan", "w1", "w2"), 0.03),
    ]
    arrivals_s = [r.arrival_s for r in requests]  # the earliest: as if answers took no time
    assert arrivals_s == pytest.approx([1.5005, 1.6005, 1.7505, 1.7805])
    plan, w2, w1, join = (r.prefix_block_ids for r in requests)
    assert plan == join[:2]
    assert w1[0] == w2[0]
    assert w1[1] != w2[1]
