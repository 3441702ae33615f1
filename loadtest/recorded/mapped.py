"""Any table with measured times, by a mapping of its columns or as these are recognised."""

from collections.abc import Mapping
from pathlib import Path

from servetwin.loadtest.recorded.recording import RecordedRequest, Recording
from servetwin.workloads.errors import TraceError
from servetwin.workloads.files import open_text
from servetwin.workloads.readers.prompt_records import ESTIMATED
from servetwin.workloads.request import Request
from servetwin.workloads.rows import BadRows, Rows
from servetwin.workloads.tables.reading import TableReading, read_table
from servetwin.workloads.tables.requests import requests_of
from servetwin.workloads.tables.table import TableRow

_NO_STAMPS = "no stamps of single tokens"
_WANTED = "ttft_s, e2e_s (or _ms), first_token or last_token"


def read(path: Path, columns: Mapping[str, str] | None) -> Recording:
    """Read a request of each row. Raises ``TraceError``, also where no time is measured."""
    with open_text(path) as lines:
        rows = Rows(path, lines, BadRows(0), columns=columns)
        table = read_table(rows, columns)
    if not any(row.is_measured for row in table.rows):
        raise TraceError(f"{path}: no request has a measured time; map one of {_WANTED}")
    return recording_of(table, rows.source)


def recording_of(table: TableReading, source: str) -> Recording:
    """Return what a table says of the server that answered its requests."""
    requests = requests_of(source, table.rows)
    recorded = [_recorded(*pair) for pair in zip(table.rows, requests, strict=True)]
    notes = (*table.notes[:1], *((ESTIMATED,) if table.estimates else ()), _NO_STAMPS)
    return Recording("mapped columns", recorded, notes)


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
