"""BurstGPT traces (Wang et al., KDD 2025): CSV of 6 columns, or of 8 with sessions."""

from collections.abc import Iterator
from typing import NamedTuple

from servetwin.workloads.fields import cell_integer, cell_seconds
from servetwin.workloads.readers.columns import Columns, has_columns, total_notes
from servetwin.workloads.request import Request
from servetwin.workloads.rows import Rows
from servetwin.workloads.trace import Trace

COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens", "Log Type")
TIME, MODEL, PROMPT, OUTPUT, KIND = COLUMNS
TOTAL, SESSION, ELAPSED = "Total tokens", "Session ID", "Elapsed time"


class Row(NamedTuple):
    """A row as it stands."""

    line: int
    stamp_s: float
    prompt_tokens: int
    output_tokens: int
    total_tokens: int | None
    model: str
    kind: str
    session_id: str | None
    elapsed_s: float | None


def recognises(row: str) -> bool:
    """Return whether the first row of a file has this format."""
    return has_columns(row, COLUMNS)


def read(rows: Rows) -> Trace:
    """Read the requests in file order; the earliest arrives at 0. No response means a failed
    request.

    A row follows the previous row of its session, ``delay_s`` after that one's elapsed time.
    """
    columns = Columns(rows, COLUMNS)
    parsed = rows.parse(lambda line, text: parse_row(line, columns.cells(text)))
    requests = tuple(_requests(rows.source, parsed))
    whole_seconds = all(row.stamp_s.is_integer() for row in parsed)
    sums = ((row.total_tokens, row.prompt_tokens + row.output_tokens) for row in parsed)
    differing = sum(total not in (None, tokens) for total, tokens in sums)
    return Trace(requests, rows.source, 1.0 if whole_seconds else None, total_notes(differing))


def parse_row(line: int, cells: dict[str, str]) -> Row:
    """Return a row of its cells."""
    output_tokens = cell_integer(OUTPUT, cells[OUTPUT], 0)
    total, elapsed = cells.get(TOTAL), cells.get(ELAPSED)
    return Row(
        line=line,
        stamp_s=cell_seconds(TIME, cells[TIME]),
        prompt_tokens=cell_integer(PROMPT, cells[PROMPT], 1 if output_tokens else 0),
        output_tokens=output_tokens,
        total_tokens=cell_integer(TOTAL, total, 0) if total else None,
        model=cells[MODEL],
        kind=cells[KIND],
        session_id=cells.get(SESSION) or None,
        elapsed_s=cell_seconds(ELAPSED, elapsed) if elapsed else None,
    )


def _requests(source: str, parsed: list[Row]) -> Iterator[Request]:
    origin_s = min((row.stamp_s for row in parsed), default=0.0)
    latest: dict[str | None, tuple[Row | None, int]] = {}
    for row in parsed:
        previous, turn = latest.get(row.session_id, (None, 0))
        if row.session_id is not None:
            latest[row.session_id] = row, turn + 1
        yield as_request(source, row, origin_s, previous, turn)


def as_request(
    source: str, row: Row, origin_s: float, previous: Row | None = None, turn: int = 0
) -> Request:
    """Return a row as a request of a trace that begins at ``origin_s``.

    ``previous`` is the row before it in its session, where it is the ``turn``-th, from 0.
    """
    return Request(
        request_id=_request_id(source, row),
        arrival_s=row.stamp_s - origin_s,
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.output_tokens,
        session_id=row.session_id,
        parent_id=_request_id(source, previous) if previous else None,
        turn=None if row.session_id is None else turn,
        delay_s=_delay_s(previous, row) if previous else None,
        model=row.model,
        kind=row.kind,
        status="ok" if row.output_tokens else "failed",
        source_line=row.line,
    )


def _delay_s(previous: Row, row: Row) -> float | None:
    if previous.elapsed_s is None:
        return None
    return max(0.0, row.stamp_s - previous.stamp_s - previous.elapsed_s)


def _request_id(source: str, row: Row) -> str:
    return f"{source}:{row.line - 1}"
