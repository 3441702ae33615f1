"""Each format becomes the canonical fields; what was done to the rows is in the notes."""

import gzip

import numpy as np
import pytest

from servetwin.workloads.errors import TraceError
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from tests.support.trace_rows import AZURE, Write, shared, shared_trace

MOONCAKE = """{"timestamp": 3000, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 3000, "input_length": 512, "output_length": 7, "hash_ids": [0]}
"""
NATIVE = """{"source": "mine", "block_tokens": 4, "clock_s": 2, "notes": ["by hand"], "sha256": "0"}
{"arrival_s": 1, "prompt_tokens": 6, "output_tokens": 2, "prefix_block_ids": [7, 8], "colour": 1}
{"arrival_s": 2.5, "prompt_tokens": 6, "output_tokens": 0, "status": "failed", "request_id": "f"}
{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 1, "parent_id": "f", "priority": null}
"""


def test_mooncake(write: Write) -> None:
    trace = read_trace(write(MOONCAKE))
    assert trace.requests == (
        Request("some:1", 3.0, 600, 5, (0, 1), 512, source_line=1),
        Request("some:2", 3.0, 512, 7, (0,), 512, source_line=2),
    )
    assert trace.clock_s is None
    assert trace.notes == ("100.0% of rows share the stamp of the row before",)


def test_native(write: Write) -> None:
    trace = read_trace(write(NATIVE))
    assert trace.requests == (
        Request("mine:3", 0.0, 5, 1, block_tokens=4),
        Request("mine:1", 1.0, 6, 2, (7, 8), 4),
    )
    assert (trace.source, trace.clock_s) == ("mine", 2.0)
    assert trace.notes == (
        "by hand",
        "unknown fields left out: colour",
        "1 failed row left out",
        "1 row out of order: sorted by arrival",
    )


def test_a_file_without_header_is_its_own_source(write: Write) -> None:
    trace = read_trace(write('\n{"arrival_s": 1, "prompt_tokens": 6, "output_tokens": 2}\n'))
    assert trace.requests == (Request("some:2", 1.0, 6, 2, source_line=2),)


@pytest.mark.parametrize("text", [AZURE, MOONCAKE, NATIVE])
def test_gzip_is_seen_by_its_bytes_and_a_byte_order_mark_is_skipped(
    write: Write, text: str
) -> None:
    plain = read_trace(write(text))
    path = write("")
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    assert read_trace(path) == plain


def test_rows_out_of_order_are_sorted_stably_and_counted(write: Write) -> None:
    rows = [(5, "a"), (1, "b"), (5, "c"), (1, "d"), (6, "e")]
    text = "".join(
        f'{{"arrival_s": {at}, "request_id": "{name}", "prompt_tokens": 1, "output_tokens": 1}}\n'
        for at, name in rows
    )
    trace = read_trace(write(text))
    assert "".join(r.request_id for r in trace) == "bdace"
    assert trace.notes[0] == "2 rows out of order: sorted by arrival"


def test_ids_that_do_not_fit_are_cut_and_counted(write: Write) -> None:
    row = '{"timestamp": %d, "input_length": 600, "output_length": 5, "hash_ids": %s}\n'
    lists = [[0, 1, 2], [0], [0, 1], []]
    trace = read_trace(write("".join(row % pair for pair in enumerate(lists))))
    assert [r.prefix_block_ids for r in trace] == [(0, 1), (0,), (0, 1), ()]
    assert trace.notes == ("1 row whose ids do not fit the prompt: extra ids cut",)


def test_no_requests_but_failed_ones(write: Write) -> None:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,1,0\n"
    with pytest.raises(TraceError, match=r"no requests; 1 failed row left out$"):
        read_trace(write(text))


@pytest.mark.parametrize(
    ("name", "clock_s"),
    [
        ("azure/AzureLLMInferenceTrace_conv.csv.gz", None),
        ("mooncake/conversation_trace.jsonl.gz", 3.0),
        ("mooncake/arxiv_trace_window_93.jsonl", 3.056),
    ],
)
def test_clock_of_the_shared_traces(name: str, clock_s: float | None) -> None:
    assert shared_trace(name).clock_s == clock_s


@pytest.mark.slow
def test_spreading_the_ties_of_a_real_trace() -> None:
    path = shared("mooncake/conversation_trace.jsonl.gz")
    tied = shared_trace("mooncake/conversation_trace.jsonl.gz")
    spread = read_trace(path, spread_ties=True, seed=7)
    assert spread == read_trace(path, spread_ties=True, seed=7)
    assert spread != read_trace(path, spread_ties=True, seed=8)
    assert [r.request_id for r in spread] == [r.request_id for r in tied]
    moved_s = np.subtract([r.arrival_s for r in spread], [r.arrival_s for r in tied])
    assert 0 <= moved_s.min() < 0.01
    assert 2.99 < moved_s.max() < 3.0
    assert spread.notes[-1] == "ties spread over 3 s (seed 7)"
