"""LLMServingSim's workloads: token ids name blocks, calls of a session follow each other."""

import pytest

from servetwin.workloads.errors import TraceError
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from tests.support.trace_rows import Write, lines

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
    assert [(r.request_id, r.parent_id, r.delay_s, r.arrival_s) for r in calls] == [
        ("a:0", None, None, 1.0), ("a:1", "a:0", 1.5, 2.5), ("a:2", "a:1", 1.5, 4.0),
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
