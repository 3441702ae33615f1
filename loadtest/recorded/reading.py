"""Reading a recorded run in any known format, with errors that name the place in the file."""

import json
from collections.abc import Mapping
from pathlib import Path

from servetwin.loadtest.recorded import mapped
from servetwin.loadtest.recorded.dataset import with_dataset
from servetwin.loadtest.recorded.formats import FORMATS
from servetwin.loadtest.recorded.recording import Record, Recording, records_of
from servetwin.workloads.errors import TraceError
from servetwin.workloads.files import open_text
from servetwin.workloads.readers import table
from servetwin.workloads.rows import RowError

_KNOWN = (
    "vLLM's and SGLang's bench results, AIPerf's profile_export.jsonl, GuideLLM's and "
    "inference-perf's reports, stamps of the engine, OpenTelemetry spans; for any other CSV or "
    "JSON Lines give --map arrival_s=COLUMN,prompt_tokens=COLUMN,..."
)

_HEAD_CHARACTERS = 2**16
"""How much of a file says whether it is JSON, which is read as one text, or a table."""


def read_recording(path: Path, columns: Mapping[str, str] | None = None) -> Recording:
    """Read a plain or gzipped file.

    ``columns`` say what the columns of a table hold; without them those of a table that is no other
    format are recognised (``workloads.tables``). Raises ``TraceError`` that names the file, the
    place and the field of what is wrong.
    """
    if columns is not None:
        return _checked(path, mapped.read(path, columns))
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
        return _checked(path, _read(path, records_of(text)) if is_json else mapped.read(path, None))
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
        return mapped.read(path, None)
    raise TraceError(f"{path}: no known format of a recorded run; known are {_KNOWN}")
