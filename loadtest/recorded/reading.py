"""Reading a recorded run in any known format, with errors that name the place in the file.

Any table with measured times, by a mapping of its columns or as these are recognised.

The prompts of a recorded run whose stamps and workload are in separate files.

LLMServingSim's bench writes ``requests.jsonl`` without prompts, and beside it ``meta.json`` with
the path of the workload, in which request ``bench-7`` has the place 7, counted from 0.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from servetwin.loadtest.recorded.formats import FORMATS
from servetwin.loadtest.recorded.recording import Record, RecordedRequest, Recording, records_of
from servetwin.workloads.errors import TraceError
from servetwin.workloads.files import mapping_in, open_text
from servetwin.workloads.readers import table
from servetwin.workloads.readers.prompt_records import ESTIMATED
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.rows import BadRows, RowError, Rows
from servetwin.workloads.tables.reading import read_table
from servetwin.workloads.tables.requests import requests_of
from servetwin.workloads.tables.table import TableRow


def with_dataset(path: Path, recording: Recording) -> Recording:
    """Return the recording of a file with the prefixes of its prompts, if a workload names them.

    A note says where a workload is missing. Raises ``RowError`` where it is another one.
    """
    places = [re.fullmatch(r"bench-(\d{1,9})", one.request_id) for one in recording.requests]
    name = _dataset_name(path.with_name("meta.json"))
    if name is None or None in places:
        return recording
    near = [path.with_name(Path(name).name), *(folder / name for folder in path.parents)]
    dataset = next((one for one in near if one.is_file()), None)
    if dataset is None:
        note = f"no {name} beside the file or above it: prompts are taken to share no prefix"
        return replace(recording, notes=(*recording.notes, note))
    prompts = sorted(read_trace(dataset), key=lambda request: request.source_line or 0)
    joined = [
        _joined(one, dataset, prompts, int(place[1]))
        for one, place in zip(recording.requests, places, strict=True)
        if place
    ]
    return replace(recording, requests=joined, notes=(*recording.notes, f"prompts of {name}"))


def _dataset_name(meta: Path) -> str | None:
    try:
        name = mapping_in(meta).get("dataset_path")
    except (OSError, ValueError):
        return None
    return name if isinstance(name, str) and name else None


def _joined(
    one: RecordedRequest, dataset: Path, prompts: list[Request], place: int
) -> RecordedRequest:
    if one.prefix_block_ids or one.error is not None:
        return one
    prompt = prompts[place] if place < len(prompts) else None
    if prompt is None or prompt.prompt_tokens != one.prompt_tokens:
        has = f"{prompt.prompt_tokens} tokens" if prompt else f"only {len(prompts)} requests"
        raise RowError(
            one.request_id, f"{one.prompt_tokens} prompt tokens, but {dataset} has {has}", place
        )
    ids = prompt.prefix_block_ids
    return replace(one, prefix_block_ids=ids, block_tokens=prompt.block_tokens if ids else None)


_NO_STAMPS = "no stamps of single tokens"
_WANTED = "ttft_s, e2e_s (or _ms), first_token or last_token"


def read_mapped(path: Path, columns: Mapping[str, str] | None) -> Recording:
    """Read a request of each row of a table, by its columns or as these are recognised.

    Raises ``TraceError``, also where no time is measured.
    """
    with open_text(path) as lines:
        rows = Rows(path, lines, BadRows(0), columns=columns)
        read = read_table(rows, columns)
    if not any(row.is_measured for row in read.rows):
        raise TraceError(f"{path}: no request has a measured time; map one of {_WANTED}")
    pairs = zip(read.rows, requests_of(rows.source, read.rows), strict=True)
    notes = (*read.notes[:1], *((ESTIMATED,) if read.estimates else ()), _NO_STAMPS)
    return Recording("mapped columns", [_recorded(*pair) for pair in pairs], notes)


def _recorded(row: TableRow, request: Request) -> RecordedRequest:
    start_s = request.arrival_s
    return RecordedRequest(
        request.request_id,
        request.prompt_tokens,
        request.output_tokens,
        start_s,
        None if row.ttft_s is None else start_s + row.ttft_s,
        None if row.e2e_s is None else start_s + row.e2e_s,
        queue_s=row.queue_s,
        cached_tokens=row.counts.get("cached_tokens"),
        prefix_block_ids=request.prefix_block_ids,
        block_tokens=request.block_tokens,
        error=row.failure,
    )


_KNOWN = (
    "vLLM's and SGLang's bench results, AIPerf's profile_export.jsonl, GuideLLM's and "
    "inference-perf's reports, stamps of the engine, OpenTelemetry spans; for any other CSV or "
    "JSON Lines give --map arrival_s=COLUMN,prompt_tokens=COLUMN,..."
)

# How much of a file says whether it is JSON, which is read as one text, or a table.
_HEAD_CHARACTERS = 2**16


def read_recording(path: Path, columns: Mapping[str, str] | None = None) -> Recording:
    """Read a plain or gzipped file.

    ``columns`` say what the columns of a table hold; without them those of a table that is no other
    format are recognised (``workloads.tables``). Raises ``TraceError`` that names the file, the
    place and the field of what is wrong.
    """
    if columns is not None:
        return _checked(path, read_mapped(path, columns))
    with open_text(path) as file:
        text = file.read(_HEAD_CHARACTERS)
        is_json = text.lstrip()[:1] in ("{", "[")
        text += file.whole() if is_json else ""
    try:
        _require_utf8(text)
        if not text.strip():
            raise TraceError(f"{path}: empty; a recorded run has at least one request")
        if not is_json and not table.recognises(text.lstrip().partition("\n")[0]):
            raise TraceError(f"{path}: no recorded run is in it; known are {_KNOWN}")
        return _checked(path, _read(path, records_of(text)) if is_json else read_mapped(path, None))
    except RowError as error:
        raise TraceError(f"{path}: {error}") from None


def _checked(path: Path, recording: Recording) -> Recording:
    for place, request in enumerate(recording.requests):
        try:
            request.check()
        except RowError as error:
            raise TraceError(f"{path}: {error.inside(f'request {place}')}") from None
    return recording


def _require_utf8(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise RowError(f"line {line}", "not UTF-8", text[error.start : error.end]) from None


def _read(path: Path, records: list[Record]) -> Recording:
    if not records:
        raise TraceError(f"{path}: no recorded run is in it; known are {_KNOWN}")
    for known in FORMATS.values():
        if known.recognises(records[0].fields):
            return with_dataset(path, known.read(records))
    if table.recognises(json.dumps(records[0].fields)):
        return read_mapped(path, None)
    raise TraceError(f"{path}: no known format of a recorded run; known are {_KNOWN}")
