"""Every malformed input gives one exact line that names the file, the line and the field."""

import gzip
import json
from pathlib import Path

import pytest

from servetwin.workloads.errors import TraceError
from servetwin.workloads.reading import read_trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
AT = "2023-11-16 18:15:46.6805900"
GOOD = f"{AT},374,44\r\n"
ROW = '{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 2}\n'


def mooncake(**changes: object) -> str:
    row = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
    return json.dumps({name: v for name, v in (row | changes).items() if v != "absent"}) + "\n"


def native(**changes: object) -> str:
    row = {"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 2}
    return json.dumps({name: v for name, v in (row | changes).items() if v != "absent"}) + "\n"


AZURE_HEADERS = [
    (
        "TIME,ContextTokens,GeneratedTokens\n",
        "1: field 'TIMESTAMP': missing column (\"TIME,ContextTokens,GeneratedTokens\")",
    ),
    (
        "TIMESTAMP,ContextTokens\n",
        "1: field 'GeneratedTokens': missing column (\"TIMESTAMP,ContextTokens\")",
    ),
]
AZURE = [
    (
        HEADER + f"{AT},3\n",
        f"2: field 'GeneratedTokens': the row has 2 cells where the header has 3 (\"{AT},3\")",
    ),
    (
        HEADER + GOOD + "16/11/2023,3,4\n",
        "3: field 'TIMESTAMP': not a time like 2023-11-16 18:15:46.6805900 (\"16/11/2023\")",
    ),
    (
        HEADER + "2023-02-30 00:00:00,3,4\n",
        "2: field 'TIMESTAMP': no such time (\"2023-02-30 00:00:00\")",
    ),
    (HEADER + f"{AT},7000.5,4\n", "2: field 'ContextTokens': not an integer (\"7000.5\")"),
    (HEADER + f"{AT},,4\n", "2: field 'ContextTokens': missing (\"\")"),
    (HEADER + f"{AT},nan,4\n", "2: field 'ContextTokens': missing (\"nan\")"),
    (HEADER + f"{AT},0,4\n", "2: field 'ContextTokens': must be at least 1 (0)"),
    (HEADER + f"{AT},3,-4\n", "2: field 'GeneratedTokens': negative (-4)"),
    (HEADER + f"{AT},3000000000,4\n", "2: field 'ContextTokens': beyond 2147483647 (3000000000)"),
]
MOONCAKE = [
    (
        mooncake(output_length="absent"),
        "1: field 'output_length': missing"
        ' ({"timestamp": 0, "input_length": 600, "hash_ids": [0, 1]})',
    ),
    (mooncake(timestamp=0.5), "1: field 'timestamp': not an integer (0.5)"),
    (mooncake(wait_for=["x"]), "1: field 'request_id': missing beside wait_for (null)"),
    (
        mooncake(request_id="a", timestamp=0.5) + mooncake(request_id="b", wait_for=["a", "x"]),
        "2: field 'wait_for': unknown (\"x\")",
    ),
    (mooncake(request_id="a") * 2, "2: field 'request_id': duplicate (\"a\")"),
    (mooncake(request_id="a", wait_for=["a"]), "1: field 'wait_for': cyclic (\"a\")"),
    (mooncake(timestamp=-1), "1: field 'timestamp': negative (-1)"),
    (mooncake(input_length=True), "1: field 'input_length': not an integer (true)"),
    (mooncake(input_length="12"), "1: field 'input_length': not an integer (\"12\")"),
    (mooncake(input_length=7000.5), "1: field 'input_length': not an integer (7000.5)"),
    (mooncake(input_length=0), "1: field 'input_length': must be at least 1 (0)"),
    (mooncake(output_length=None), "1: field 'output_length': must not be null (null)"),
    (mooncake(hash_ids=7), "1: field 'hash_ids': not a list of integers (7)"),
    (mooncake(hash_ids=[0, "1"]), "1: field 'hash_ids': not a list of integers ([0, \"1\"])"),
    (mooncake(hash_ids=[0, True]), "1: field 'hash_ids': not a list of integers ([0, true])"),
    (mooncake(hash_ids=[0, -1]), "1: field 'hash_ids': negative (-1)"),
    (
        '{"delay": 3, "timestamp": 1}\n',
        "1: field 'session_id': missing beside delay (null)",
    ),
    (mooncake() + "\n" + '{"timestamp": 0\n', '3: field \'row\': not JSON ("{\\"timestamp\\": 0")'),
]
NATIVE = [
    (ROW + "[1, 2]\n", "2: field 'row': not a JSON object (\"[1, 2]\")"),
    (ROW + "nonsense\n", "2: field 'row': not JSON (\"nonsense\")"),
    (ROW + "[" * 100_000 + "\n", f"2: field 'row': not JSON (\"{'[' * 56}...)"),
    (
        '{"arrival_s": 0, "prompt_tokens": 5}\n',
        '1: field \'output_tokens\': missing ({"arrival_s": 0, "prompt_tokens": 5})',
    ),
    ('{"note": 1}\n', "1: field 'arrival_s': missing ({\"note\": 1})"),
    (native(arrival_s=float("nan")), "1: field 'arrival_s': not finite (NaN)"),
    (native(arrival_s=float("inf")), "1: field 'arrival_s': not finite (Infinity)"),
    (native(arrival_s=10**30), f"1: field 'arrival_s': beyond 1e+10 ({10**30})"),
    (native(prefix_block_ids=[-1], block_tokens=8), "1: field 'prefix_block_ids': negative (-1)"),
    (native(answer_block_ids=[4, -7]), "1: field 'answer_block_ids': negative (-7)"),
    (native(arrival_s=-0.5), "1: field 'arrival_s': negative (-0.5)"),
    (native(arrival_s=None), "1: field 'arrival_s': must not be null (null)"),
    (native(arrival_s="0"), "1: field 'arrival_s': not a number (\"0\")"),
    (native(arrival_s=False), "1: field 'arrival_s': not a number (false)"),
    (native(prompt_tokens=0), "1: field 'prompt_tokens': must be at least 1 (0)"),
    (
        native(output_tokens=5, reasoning_tokens=6),
        "1: field 'reasoning_tokens': part of the output, which has 5 tokens (6)",
    ),
    (native(reasoning_tokens=-1), "1: field 'reasoning_tokens': negative (-1)"),
    (native(output_tokens=0), "1: field 'output_tokens': 0 only where status is failed (0)"),
    (native(status="lost"), "1: field 'status': must be ok or failed (\"lost\")"),
    (native(request_id=7), "1: field 'request_id': not a string (7)"),
    (
        native(request_id="a\ud800"),
        "1: field 'request_id': has half of a surrogate pair (\"a\\ud800\")",
    ),
    (native(modal=[1]), "1: field 'modal': not an object ([1])"),
    (native(modal={"images": -1}), "1: field 'modal.images': negative (-1)"),
    (
        native(prefix_block_ids=[1]),
        "1: field 'block_tokens': missing beside prefix_block_ids (null)",
    ),
    (
        native(answer_block_ids=[1]),
        "1: field 'block_tokens': missing beside answer_block_ids (null)",
    ),
    (
        native(prompt_tokens=9, answer_block_ids=[1], block_tokens=4),
        "1: field 'answer_block_ids': wants prefix_block_ids of the 2 full blocks of the prompt "
        "([1])",
    ),
    (
        native(
            prompt_tokens=5,
            output_tokens=4,
            prefix_block_ids=[1],
            answer_block_ids=[2, 3],
            block_tokens=4,
        ),
        "1: field 'answer_block_ids': at most 1, one for each full block that ends in the answer "
        "([2, 3])",
    ),
    (native(request_id="a") * 2, "2: field 'request_id': duplicate (\"a\")"),
    (native(parent_id="b"), "1: field 'parent_id': unknown (\"b\")"),
    (
        native(request_id="a") + native(parent_ids=["a", "x", "y"]),
        "2: field 'parent_ids': unknown (\"x\")",
    ),
    (native(parent_ids="a"), "1: field 'parent_ids': not a list of strings (\"a\")"),
    (native(request_id="a", parent_id="a"), "1: field 'parent_id': cyclic (\"a\")"),
    (
        native(request_id="root")
        + native(request_id="a", parent_id="b")
        + native(request_id="b", parent_id="a"),
        "2: field 'parent_id': cyclic (\"b\")",
    ),
    ('{"schema": "other-2"}\n' + ROW, "1: field 'schema': must be servetwin-trace-1 (\"other-2\")"),
    ('{"block_tokens": 0}\n' + ROW, "1: field 'block_tokens': must be at least 1 (0)"),
    ('{"notes": "x"}\n' + ROW, "1: field 'notes': not a list of strings (\"x\")"),
    (
        "hello\n",
        "1: field 'row': no known trace format: wants the CSV header or the JSON objects of"
        " sharegpt, chat, prompts, azure, burstgpt, vidur, weka, tracelab, bailian,"
        ' llmservingsim, mooncake, table, native ("hello")',
    ),
]


@pytest.mark.parametrize(("content", "message"), AZURE_HEADERS)
def test_a_reader_that_was_named_wants_all_of_its_columns(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "trace"
    path.write_text(content)
    with pytest.raises(TraceError) as raised:
        read_trace(path, format="azure")
    assert str(raised.value) == f"{path}:{message}"


@pytest.mark.parametrize(("content", "message"), [*AZURE, *MOONCAKE, *NATIVE])
def test_malformed_row(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content.encode())
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    assert str(raised.value) == f"{path}:{message}"


GZIPPED = gzip.compress((HEADER + GOOD * 50).encode(), mtime=0)
FILES = [
    (b"", ":1: empty, a trace has at least one row"),
    (b"\n \n", ":1: empty, a trace has at least one row"),
    (gzip.compress(b"", mtime=0), ":1: empty, a trace has at least one row"),
    (HEADER.encode(), ":1: no requests"),
    (
        GZIPPED[:-20],
        ": the gzip data are truncated or damaged (Compressed file ended before the"
        " end-of-stream marker was reached)",
    ),
    (
        ROW.encode() + b'{"x": "\xff"}\n',
        ":2: field 'row': not UTF-8; save it as UTF-8 (Excel: CSV UTF-8) "
        '("{\\"x\\": \\"\\udcff\\"}")',
    ),
    (
        b"\xff\xff\n",
        ":1: field 'row': not UTF-8; save it as UTF-8 (Excel: CSV UTF-8) (\"\\udcff\\udcff\")",
    ),
    (HEADER.encode("utf-16"), ": text in UTF-16; save it as UTF-8 (Excel: CSV UTF-8)"),
]


@pytest.mark.parametrize(("content", "message"), FILES)
def test_bad_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    assert str(raised.value) == f"{path}{message}"


def test_damaged_gzip(tmp_path: Path) -> None:
    path = tmp_path / "trace.gz"
    path.write_bytes(GZIPPED[:-8] + b"\0" * 8)  # wrong checksum
    with pytest.raises(TraceError, match="the gzip data are truncated or damaged"):
        read_trace(path)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.csv: no such file$"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(
        TraceError, match=r": a directory without any \*\.json, \*\.json\.gz: wants a trace file$"
    ):
        read_trace(tmp_path)


def test_unknown_format_names_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(ROW)
    with pytest.raises(TraceError, match="'azur'; did you mean 'azure'"):
        read_trace(path, format="azur")


def test_bad_rows_up_to_a_limit_are_notes(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(HEADER + GOOD + "x,1,1\n" + GOOD + f"{AT},0,1\n")
    messages = (
        f"{path}:3: field 'TIMESTAMP': not a time like 2023-11-16 18:15:46.6805900 (\"x\")",
        f"{path}:5: field 'ContextTokens': must be at least 1 (0)",
    )
    trace = read_trace(path, max_bad_rows=2)
    assert [r.source_line for r in trace] == [2, 4]
    assert trace.notes[-3:] == ("2 bad rows skipped", *messages)
    with pytest.raises(TraceError) as raised:
        read_trace(path, max_bad_rows=1)
    assert str(raised.value) == "\n".join(messages)


def test_a_bad_first_row_can_be_skipped(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text('{"arrival_s": 0\n' + ROW)
    assert len(read_trace(path, max_bad_rows=1)) == 1


def test_broken_parents_can_be_skipped(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(
        native(request_id="a", parent_id="nowhere") + native(request_id="b", parent_id="a")
    )
    trace = read_trace(path, max_bad_rows=1)
    assert [(r.request_id, r.parent_ids) for r in trace] == [("b", ())]
