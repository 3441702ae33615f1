"""Reading a recorded run in any known format, with errors that name the place in the file."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Protocol

from loadtest.recorded.formats import (
    aiperf,
    bench_serving,
    engine_stamps,
    guidellm,
    inference_perf,
    mapped,
    otel_spans,
)
from loadtest.recorded.recording import Record, RecordedRequest, Recording, records_of
from workloads.errors import TraceError
from workloads.files import open_text
from workloads.rows import RowError


class Format(Protocol):
    """A file format of recorded runs, a module of ``loadtest.recorded.formats``."""

    def recognises(self, record: Mapping[str, Any]) -> bool:
        """Return whether the first record of a file is in this format."""

    def read(self, records: Sequence[Record]) -> Recording:
        """Return the requests in file order, failed ones included."""


FORMATS: tuple[Format, ...] = (
    engine_stamps,
    bench_serving,
    aiperf,
    guidellm,
    inference_perf,
    otel_spans,
)
"""In the order in which they are shown the first record of a file."""

_KNOWN = (
    "vLLM's and SGLang's bench results, AIPerf's profile_export.jsonl, GuideLLM's and "
    "inference-perf's reports, stamps of the engine, OpenTelemetry spans; for any other CSV or "
    "JSON Lines give --map arrival_s=COLUMN,prompt_tokens=COLUMN,..."
)


def read_recording(path: Path, columns: Mapping[str, str] | None = None) -> Recording:
    """Read a plain or gzipped file; ``columns`` map quantities to columns (``formats.mapped``).

    Raises ``TraceError`` that names the file, the place and the field of what is wrong.
    """
    with open_text(path) as file:
        text = file.whole()
    try:
        _require_utf8(text)
        records = _records(path, text, columns is not None)
        found = mapped.read(records, columns) if columns is not None else _read(path, records)
        for place, request in enumerate(found.requests):
            _check(place, request)
    except RowError as error:
        raise TraceError(f"{path}: {error}") from None
    return found


def _check(place: int, request: RecordedRequest) -> None:
    try:
        request.check()
    except RowError as error:
        raise error.inside(f"request {place}") from None


def _records(path: Path, text: str, is_mapped: bool) -> list[Record]:
    if not text.strip():
        raise TraceError(f"{path}: empty; a recorded run has at least one request")
    if text.lstrip()[0] in "{[":
        records = records_of(text)
    elif is_mapped:
        records = list(_csv_records(text))
    else:
        records = []
    if not records:
        raise TraceError(f"{path}: no recorded run is in it; known are {_KNOWN}")
    return records


def _csv_records(text: str) -> Iterator[Record]:
    """Yield the rows below the header. Raises ``RowError`` for one of another length."""
    rows = csv.reader(StringIO(text), strict=True)
    try:
        header = next(rows)
        for row in filter(None, rows):
            place = f"line {rows.line_num}"
            if len(row) != len(header):
                reason = f"{len(row)} cells where the header has {len(header)}"
                raise RowError(place, reason, ",".join(row))
            yield Record(place, dict(zip(header, row, strict=True)))
    except csv.Error as error:
        raise RowError(f"line {rows.line_num}", f"not CSV: {error}", "") from None


def _require_utf8(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise RowError(f"line {line}", "not UTF-8", text[error.start : error.end]) from None


def _read(path: Path, records: list[Record]) -> Recording:
    for known in FORMATS:
        if known.recognises(records[0].fields):
            return known.read(records)
    raise TraceError(f"{path}: no known format of a recorded run; known are {_KNOWN}")
