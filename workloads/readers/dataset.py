"""Hugging Face datasets in a local folder: Parquet files, or what ``save_to_disk`` wrote (Arrow).

Both are read as they lie there, with pyarrow: nothing is downloaded, and no cache is written. Rows
have the columns of conversations, chats or prompts.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servetwin.workloads.errors import TraceError
from servetwin.workloads.files import is_directory
from servetwin.workloads.readers import chat, prompts, sharegpt
from servetwin.workloads.readers.prompt_records import PromptRecords, TakeRecord
from servetwin.workloads.request import Request
from servetwin.workloads.rows import BadRows, RowError, Rows
from servetwin.workloads.trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa

ENDINGS = (".parquet", ".arrow")
_SHARD = re.compile(r"(?P<split>.*?)[-_.]?\d+(-of-\d+)?$")
_TAKES: Mapping[str, TakeRecord] = {
    sharegpt.FIELD: sharegpt.first_exchange,
    chat.FIELD: chat.chat_prompt,
    **dict.fromkeys(prompts.FIELDS, prompts.prompt_of),
}


def is_dataset(path: Path) -> bool:
    """Return whether a path is a file of a dataset, or a folder with some at any depth."""
    if is_directory(path):
        return any(file.suffix in ENDINGS for file in path.rglob("*"))
    return path.suffix in ENDINGS


def read_dataset(path: Path, bad: BadRows, header_columns: Mapping[str, str]) -> Trace:
    """Read a request per row; all arrive at 0.

    Raises ``TraceError`` where the folder has several splits, or a file cannot be read.
    """
    files = _files(path)
    rows = Rows(path, (), bad, header_columns)
    requests: list[Request | None] = []
    records: PromptRecords | None = None
    for file in files:
        for number, record in enumerate(_records(file), 1):
            records = records or PromptRecords(rows, _take(file, record))
            try:
                requests.append(records.request(number, record))
            except RowError as error:
                bad.add(file, number, f"{file}:{number}: {error}")
    if records is None:
        raise TraceError(f"{path}: a dataset without rows")
    return records.trace(requests)


def _files(path: Path) -> list[Path]:
    """Return the files of the one split, in their order."""
    if not path.is_dir():
        return [path]
    files = sorted(file for ending in ENDINGS for file in path.rglob(f"*{ending}"))
    splits = {_split(path, file) for file in files}
    if len(splits) > 1:
        names = ", ".join(sorted(splits))
        raise TraceError(f"{path}: has the splits {names}; give the folder or the file of one")
    return files


def _split(root: Path, file: Path) -> str:
    """Return the folder of a file and its name without the number of the shard."""
    shard = _SHARD.fullmatch(file.stem)
    name = shard["split"] if shard else file.stem
    return str(file.parent.relative_to(root) / name)


def _take(file: Path, record: Mapping[str, Any]) -> TakeRecord:
    for name, take in _TAKES.items():
        if name in record:
            return take
    columns = ", ".join(record)
    raise TraceError(f"{file}: wants a column {', '.join(_TAKES)}; it has {columns}")


def _records(file: Path) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    try:
        for batch in _batches(file):
            batch.validate(full=True)  # else damaged offsets are followed beyond the memory
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise TraceError(f"{file}: not a readable {file.suffix[1:]} file ({reason})") from None


def _batches(file: Path) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.suffix == ".parquet":
        yield from pq.ParquetFile(file).iter_batches(1024)
        return
    with pa.memory_map(str(file)) as source:
        try:
            yield from pa.ipc.open_stream(source)
        except pa.ArrowInvalid:
            source.seek(0)
            reader = pa.ipc.open_file(source)
            yield from map(reader.get_batch, range(reader.num_record_batches))
