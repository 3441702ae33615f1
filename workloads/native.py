"""Our own trace format: JSON Lines, a header record, then one record per request."""

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from servetwin.workloads.errors import TraceError
from servetwin.workloads.files import write_whole
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

SCHEMA = "servetwin-trace-1"


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace, gzipped if the name ends in ``.gz``; a failed write leaves no partial file.

    ``read_trace`` gives the same requests back. Raises TraceError for a trace without requests or
    a place that cannot be written.
    """
    if not trace.requests:
        raise TraceError(f"{path}: nothing to write, the trace has no requests")
    write_whole(Path(path), trace_text(trace))


def trace_text(trace: Trace) -> str:
    """Return the lines of a trace's file."""
    header = _header(trace)
    records = [header, *(_record(request, header) for request in trace)]
    return "".join(json.dumps(record) + "\n" for record in records)


def _header(trace: Trace) -> dict[str, Any]:
    header: dict[str, Any] = {"schema": SCHEMA, "source": trace.source}
    block_sizes = {request.block_tokens for request in trace}
    if len(block_sizes) == 1 and None not in block_sizes:
        header["block_tokens"] = block_sizes.pop()
    if trace.clock_s is not None:
        header["clock_s"] = trace.clock_s
    if not trace.timed:
        header["timed"] = False
    if trace.notes:
        header["notes"] = trace.notes
    return header


def _record(request: Request, header: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that differ from their defaults and from the header, and no secrets."""
    record = {}
    for field in fields(Request):
        if field.name == "headers":
            continue
        value = getattr(request, field.name)
        said = field.name == "block_tokens" and field.name in header
        if not said and (field.default is MISSING or value != field.default):
            record[field.name] = dict(value) if field.name == "modal" else value
    return record
