"""Tables with columns of any names: CSV, JSON Lines or a JSON array (``workloads.tables``)."""

from dataclasses import replace

from servetwin.workloads.fields import request_headers
from servetwin.workloads.graphs.links import without_broken_links
from servetwin.workloads.readers.prompt_records import ESTIMATED
from servetwin.workloads.rows import Rows
from servetwin.workloads.tables.mapping import missing_of
from servetwin.workloads.tables.names import meanings
from servetwin.workloads.tables.reading import read_table
from servetwin.workloads.tables.requests import requests_of
from servetwin.workloads.tables.table import delimiter_of, json_names, split_cells
from servetwin.workloads.trace import Trace

_OURS = "arrival_s"


def recognises(row: str) -> bool:
    """Return whether the first row of a file may be the header of a table, or a record of one.

    A record says most of what is needed, and is none of our own traces.
    """
    if not row.startswith("{"):
        return len(split_cells(row, delimiter_of(row))) > 1
    names = json_names(row)
    quantities = {quantity for name in names for quantity in meanings(name)}
    return len(missing_of(quantities)) < 2 and _OURS not in names


def read(rows: Rows) -> Trace:
    """Read the requests in file order; the earliest arrives at 0.

    A row follows its parents, else the one before it in its session, ``delay_s`` after the end of
    their answers where their latency is known. Prompts with one prefix share ``prefix_tokens``.
    """
    reading = read_table(rows, rows.columns, keep_cells=bool(rows.header_columns))
    requests = requests_of(rows.source, reading.rows)
    if rows.header_columns:
        requests = [
            replace(request, headers=request_headers(cells, rows.header_columns))
            for request, cells in zip(requests, reading.cells, strict=True)
        ]
    if any("parent_ids" in row.texts for row in reading.rows):
        parsed = [(request.source_line or 0, request) for request in requests]
        requests = without_broken_links(rows, parsed, "parent_ids")
    estimated = (ESTIMATED,) if reading.estimates else ()
    return Trace(tuple(requests), rows.source, notes=(*reading.notes, *estimated))
