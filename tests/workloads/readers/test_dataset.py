"""Datasets in local folders, and records of prompts."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servetwin.workloads.errors import TraceError
from servetwin.workloads.readers.prompt_fields import estimated_tokens, texts_of
from servetwin.workloads.readers.prompt_records import DEFAULT_OUTPUT_TOKENS, ESTIMATED, NO_TIMES
from servetwin.workloads.reading import read_trace
from tests.support.prompt_files import (
    ANSWERS,
    QUESTIONS,
    TENANTS,
    chats,
    lines,
    prompt_lines,
    sharegpt,
    table,
    written,
)

PROMPTS = [{"prompt": text, "tenant": f"t{index}"} for index, text in enumerate(QUESTIONS)]
CONVERSATIONS = [
    {"conversations": [{"from": "human", "value": q}, {"from": "gpt", "value": a}]}
    for q, a in zip(QUESTIONS, ANSWERS, strict=True)
]
CHATS = [{"messages": [{"role": "user", "content": text}]} for text in QUESTIONS]


def parquet(path: Path, records: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(records), path)
    return path


def arrow(path: Path, records: list[dict[str, Any]], *, stream: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(records)
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


@pytest.mark.parametrize("records", [PROMPTS, CONVERSATIONS, CHATS])
def test_each_form_in_parquet(records: list[dict[str, Any]], tmp_path: Path) -> None:
    parquet(tmp_path / "hub" / "data" / "train-00000-of-00002.parquet", records[:2])
    parquet(tmp_path / "hub" / "data" / "train-00001-of-00002.parquet", records[2:])
    trace = read_trace(tmp_path / "hub")
    said = [
        r.prompt if isinstance(r.prompt, str) else r.prompt[0]["content"] for r in trace if r.prompt
    ]
    assert said == QUESTIONS
    assert [r.request_id for r in trace] == ["hub:1", "hub:2", "hub:3"]


@pytest.mark.parametrize("stream", [True, False])
def test_what_save_to_disk_writes(stream: bool, tmp_path: Path) -> None:
    arrow(tmp_path / "saved" / "data-00000-of-00001.arrow", PROMPTS, stream=stream)
    (tmp_path / "saved" / "state.json").write_text("{}")
    (tmp_path / "saved" / "dataset_info.json").write_text("{}")
    trace = read_trace(tmp_path / "saved", header_columns={"tenant": "X-Tenant"})
    assert [r.prompt for r in trace] == QUESTIONS
    assert [r.headers for r in trace] == [{"X-Tenant": f"t{n}"} for n in range(3)]


def test_one_split_is_wanted(tmp_path: Path) -> None:
    train = parquet(tmp_path / "d" / "data" / "train-00000-of-00001.parquet", PROMPTS)
    parquet(tmp_path / "d" / "data" / "test-00000-of-00001.parquet", PROMPTS[:1])
    with pytest.raises(TraceError, match="has the splits data/test, data/train; give the folder"):
        read_trace(tmp_path / "d")
    assert len(read_trace(train)) == 3


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    damaged = tmp_path / "x.parquet"
    damaged.write_bytes(b"PAR1 and nothing more")
    other = parquet(tmp_path / "other.parquet", [{"question": "q"}])
    empty = parquet(tmp_path / "empty.parquet", [])
    cases = {
        damaged: "x.parquet: not a readable parquet file",
        tmp_path / "none.arrow": "none.arrow: not a readable arrow file",
        other: "other.parquet: wants a column conversations, messages, prompt, text; it has quest",
        empty: "empty.parquet: a dataset without rows",
    }
    for path, said in cases.items():
        with pytest.raises(TraceError) as refused:
            read_trace(path)
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)


def test_damaged_offsets_are_refused_and_not_followed(tmp_path: Path) -> None:
    """They lead beyond the memory: without a check the process ends."""
    path = arrow(tmp_path / "x.arrow", PROMPTS)
    data = path.read_bytes()
    second = len(PROMPTS[0]["prompt"]).to_bytes(4, "little")
    assert data.count(b"\0\0\0\0" + second) >= 1
    path.write_bytes(data.replace(b"\0\0\0\0" + second, b"\0\0\0\0\0\0\0\x70"))
    with pytest.raises(TraceError, match=r"x\.arrow: not a readable arrow file"):
        read_trace(path)


def test_a_broken_row_is_named_and_may_be_skipped(tmp_path: Path) -> None:
    path = parquet(tmp_path / "x.parquet", [*PROMPTS, {"prompt": "", "tenant": ""}])
    with pytest.raises(TraceError, match=r"x.parquet:4: field 'prompt': empty"):
        read_trace(path)
    assert len(read_trace(path, max_bad_rows=1)) == 3


@pytest.mark.parametrize("value", [Decimal("5.00"), datetime(2026, 3, 29, tzinfo=UTC), b"5"])
def test_a_value_that_json_has_not_is_named(value: object, tmp_path: Path) -> None:
    path = parquet(tmp_path / "x.parquet", [{"prompt": "a", "max_tokens": value}])
    with pytest.raises(TraceError, match=r"x.parquet:1: field 'max_tokens': not an integer"):
        read_trace(path)


def test_a_column_of_stamps_that_is_not_read_is_named(tmp_path: Path) -> None:
    stamped = {"created_at": datetime(2026, 3, 29, tzinfo=UTC), "completion_tokens": 5}
    trace = read_trace(parquet(tmp_path / "x.parquet", [{**one, **stamped} for one in CHATS]))
    assert trace.notes[2] == "created_at: not read, as prompts stand alone in this format"
    assert [(r.arrival_s, r.output_tokens) for r in trace] == [(0.0, 5)] * 3


def test_a_reader_is_no_choice_for_a_dataset(tmp_path: Path) -> None:
    path = parquet(tmp_path / "x.parquet", PROMPTS)
    with pytest.raises(TraceError, match="a dataset is known by its files; leave --reader out"):
        read_trace(path, format="prompts")


WRITTEN = [sharegpt, chats, table, prompt_lines]


@pytest.mark.parametrize("write", WRITTEN)
def test_the_form_is_seen_and_the_text_is_kept(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = write(tmp_path)
    path.rename(tmp_path / "unnamed")
    trace = read_trace(tmp_path / "unnamed")
    assert [[*texts_of(r.prompt or "")][-1] for r in trace] == QUESTIONS
    assert {r.arrival_s for r in trace} == {0.0}
    assert [r.request_id for r in trace] == ["unnamed:1", "unnamed:2", "unnamed:3"]
    assert trace.notes[:2] == (NO_TIMES, ESTIMATED)
    assert not trace.timed


@pytest.mark.parametrize("indent", [None, 2])
def test_answers_give_the_output_length(indent: int | None, tmp_path: Path) -> None:
    trace = read_trace(sharegpt(tmp_path, indent))
    assert [r.answer for r in trace] == ANSWERS
    assert [r.output_tokens for r in trace] == [estimated_tokens([text]) for text in ANSWERS]
    assert [r.prompt_tokens for r in trace] == [estimated_tokens([text]) for text in QUESTIONS]
    assert [r.source_line for r in trace] == ([1, 1, 1] if indent is None else [2, 20, 38])


def test_stated_lengths_count_before_answers(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a", "response": 40 * "b"},
        {"text": "a", "output_len": 7, "answer": "b"},
        {"prompt": [{"role": "user", "content": "a"}], "completion": None},
    ]
    trace = read_trace(written(tmp_path / "x", lines(*rows)))
    assert [r.output_tokens for r in trace] == [10, 7, DEFAULT_OUTPUT_TOKENS]
    assert [r.answer for r in trace] == [40 * "b", None, None]
    assert trace.notes[2:] == (
        f"1 prompt without an output length: {DEFAULT_OUTPUT_TOKENS} assumed",
    )


def test_an_answer_at_the_end_of_a_chat_is_not_sent(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "q"}, {"role": "assistant", "content": 8 * "a"}]
    (request,) = read_trace(written(tmp_path / "x", lines({"messages": said})))
    assert request.prompt == tuple(said[:1])
    assert (request.answer, request.output_tokens) == (8 * "a", 2)


def test_conversations_without_an_exchange_are_left_out_and_counted(tmp_path: Path) -> None:
    def turns(*said: tuple[str, str]) -> dict[str, Any]:
        return {"conversations": [{"from": who, "value": text} for who, text in said]}

    rows = [
        turns(("gpt", "a"), ("human", "b")),
        turns(("human", "b")),
        turns(),
        turns(("human", " "), ("gpt", "a")),
        turns(("human", "b"), ("gpt", "")),
        turns(("system", "s"), ("user", "q"), ("assistant", "a")),
    ]
    trace = read_trace(written(tmp_path / "x", lines(*rows)))
    assert [r.prompt for r in trace] == ["s\n\nq"]
    assert trace.notes[2:] == ("5 conversations without an answer left out",)


def test_an_array_of_any_record_is_read(tmp_path: Path) -> None:
    array = json.dumps([{"messages": [{"role": "user", "content": "q"}]}])
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(array.encode()))
    (request,) = read_trace(path)
    assert request.prompt == ({"role": "user", "content": "q"},)


def test_cells_hold_what_quotes_hold(tmp_path: Path) -> None:
    text = 'text,id\n\n"a\n\n b,""c""",1\n,2\nd,3\n'
    path = written(tmp_path / "x.csv", text)
    with pytest.raises(TraceError, match=r"x\.csv:6: field 'text': empty"):
        read_trace(path)
    trace = read_trace(path, max_bad_rows=1)
    assert [(r.prompt, r.source_line) for r in trace] == [('a\n\n b,"c"', 3), ("d", 7)]


BAD = [
    ('{"conversations": 1}', ":1: field 'conversations': not a list of objects (1)"),
    ('{"conversations": [{"from": "human"}]}', ":1: field 'conversations[0].value': not a string"),
    ('[{"conversations": []},\n{"id": 1}]', ":2: field '[1].conversations': missing"),
    ('[{"conversations": []}, 7]', ":1: field 'row': not a JSON object (\"7\")"),
    ('{"messages": []}', ":1: field 'messages': not a list of messages ([])"),
    ('{"messages": [{"role": 1}]}', ":1: field 'messages[0].role': not a string (1)"),
    ('{"messages": [{"role": "user"}]}', ":1: field 'messages': no message has content"),
    ('{"messages": ["x"]}', ":1: field 'messages[0]': not an object with role and content"),
    (
        '{"messages": [{"role": "user", "content": [{"text": "x"}]}]}',
        ":1: field 'messages[0].content[0]': not a part with its type",
    ),
    ('{"prompt": ""}', ":1: field 'prompt': empty"),
    ('{"prompt": 5}', ":1: field 'prompt': not a string (5)"),
    ('{"prompt": "a"}\n{"id": 3}', ":2: field 'prompt or text': missing"),
    ('{"prompt": "a", "max_tokens": 0}', ":1: field 'max_tokens': must be at least 1 (0)"),
    ('{"prompt": "a", "max_tokens": true}', ":1: field 'max_tokens': not an integer"),
    ('{"prompt": "a", "answer": 3}', ":1: field 'answer': not a string (3)"),
    ("prompt,output_tokens\na,x\n", ":2: field 'output_tokens': not an integer"),
    ("prompt,output_tokens\na,1,2\n", ":2: field 'row': the row has 3 cells where"),
    ('prompt\na\n"b\nc', ":3: field 'row': not CSV: unexpected end of data"),
    ("prompt,prompt\na,b\n", ":1: field 'prompt': columns 1 and 2 have this name"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_a_broken_record_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path / "bad", text)
    with pytest.raises(TraceError) as refused:
        read_trace(path)
    assert str(refused.value).startswith(f"{path}{said}")
    assert "\n" not in str(refused.value)


def test_a_cell_that_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"prompt\nok\n\xff\xfe\n")
    with pytest.raises(TraceError, match=r"x\.csv:3: field 'row': not UTF-8"):
        read_trace(path)


@pytest.mark.parametrize("write", WRITTEN)
def test_headers_come_from_columns(write: Callable[[Path], Path], tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path), header_columns={"tenant": "X-Tenant"})
    assert [r.headers for r in trace] == [{"X-Tenant": name} for name in TENANTS]
    assert "blue" not in repr(trace)


def test_a_trace_that_says_its_lengths_is_no_file_of_prompts(tmp_path: Path) -> None:
    row = {"arrival_s": 1.5, "prompt_tokens": 3, "output_tokens": 2, "prompt": "one two three"}
    (request,) = read_trace(written(tmp_path / "x", lines(row)))
    assert (request.arrival_s, request.prompt_tokens, request.prompt) == (1.5, 3, "one two three")
