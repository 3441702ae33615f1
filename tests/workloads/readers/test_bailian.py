"""Bailian: chained ids, sessions."""

from dataclasses import replace

from servetwin.workloads.generators.parents import Chaining
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.statistics import prefix_statistics
from tests.support.trace_rows import Write, chat, lines, shared_trace


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


def test_a_broken_chat_can_be_skipped(write: Write) -> None:
    path = write(lines(chat(1, 9, [1]), chat(2, 1, [1, 2])))
    trace = read_trace(path, max_bad_rows=1)
    assert [(r.request_id, r.parent_id, r.session_id) for r in trace] == [("2", None, "2")]


def test_bailian_re_keying_of_real_chained_ids_is_a_renaming() -> None:
    trace = shared_trace("mooncake/arxiv_trace_window_93.jsonl")
    chaining = Chaining()
    renamed = [replace(r, prefix_block_ids=chaining.chained(r.prefix_block_ids)) for r in trace]
    assert prefix_statistics(renamed) == prefix_statistics(trace.requests)
