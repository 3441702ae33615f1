"""Vidur's processed traces (Agrawal et al., MLSys 2024): CSV of lengths, perhaps of arrivals."""

from servetwin.workloads.fields import cell_integer, cell_seconds
from servetwin.workloads.readers.columns import Columns, has_columns, split_cells, total_notes
from servetwin.workloads.request import Request
from servetwin.workloads.rows import Rows
from servetwin.workloads.tables.mapping import ARRIVAL
from servetwin.workloads.tables.names import meanings
from servetwin.workloads.trace import Trace

PROMPT, OUTPUT = COLUMNS = ("num_prefill_tokens", "num_decode_tokens")
TIME, TOTAL = "arrived_at", "num_total_tokens"


def recognises(row: str) -> bool:
    """Return whether the first row of a file has this format."""
    if not has_columns(row, COLUMNS):
        return False
    return has_columns(row, (TIME,)) or not any(ARRIVAL in meanings(n) for n in split_cells(row))


def read(rows: Rows) -> Trace:
    """Read the requests in file order, at the file's own times, or all at 0 where it has none."""
    columns = Columns(rows, COLUMNS)
    notes = () if TIME in columns else ("no arrival times in the file: every request arrives at 0",)
    parsed = rows.parse(lambda line, text: parse_row(rows.source, line, columns.cells(text)))
    differing = sum(total not in (None, request.total_tokens) for request, total in parsed)
    requests = tuple(request for request, _ in parsed)
    return Trace(requests, rows.source, notes=(*notes, *total_notes(differing)))


def parse_row(source: str, line: int, cells: dict[str, str]) -> tuple[Request, int | None]:
    """Return the request of a row, and its total."""
    output_tokens = cell_integer(OUTPUT, cells[OUTPUT], 0)
    request = Request(
        request_id=f"{source}:{line - 1}",
        arrival_s=cell_seconds(TIME, cells[TIME]) if TIME in cells else 0.0,
        prompt_tokens=cell_integer(PROMPT, cells[PROMPT], 1),
        output_tokens=output_tokens,
        status="ok" if output_tokens else "failed",
        source_line=line,
    )
    return request, cell_integer(TOTAL, cells[TOTAL], 1) if TOTAL in cells else None
