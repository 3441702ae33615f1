"""Datasets in local folders."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servetwin.workloads.errors import TraceError
from servetwin.workloads.reading import read_trace
from tests.support.prompt_files import ANSWERS, QUESTIONS

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


def test_a_reader_is_no_choice_for_a_dataset(tmp_path: Path) -> None:
    path = parquet(tmp_path / "x.parquet", PROMPTS)
    with pytest.raises(TraceError, match="a dataset is known by its files; leave --reader out"):
        read_trace(path, format="prompts")
