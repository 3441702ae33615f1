"""Mooncake's dialects: whole and added tokens, sessions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.readers.mooncake import Turn, whole_prompts
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from tests.support.trace_rows import Write, lines, turn


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
