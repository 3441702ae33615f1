"""The first requests of a trace, without reading the rest of it where that cannot matter."""

from pathlib import Path
from typing import Any

from servetwin.workloads import reading
from servetwin.workloads.errors import TraceError
from servetwin.workloads.trace import Trace

LEAST_ROWS = 1_000
"""So many rows are read in any case: they show the clock of the source."""


def read_first(
    path: str | Path, limit: int | None, *, spread_ties: bool = False, **options: Any
) -> Trace:
    """Return a trace of at least the first ``limit`` requests of a file (None: all).

    It is read to the end where later rows may matter: rows so far are out of order, follow each
    other, have ties to be spread, or are bad, so that all bad rows are listed. ``options`` go to
    ``workloads.reading.read_trace``, which says what is raised.
    """
    rows = max(limit, LEAST_ROWS) if limit and not spread_ties else None
    while rows is not None:
        try:
            trace = reading.read_trace(path, most_rows=rows, **options)
        except TraceError:
            break
        if not trace.stopped or not _stands_alone(trace):
            break
        if limit is not None and len(trace) >= limit:
            return trace
        rows *= 2  # some had failed
    return reading.read_trace(path, spread_ties=spread_ties, **options)


def _stands_alone(trace: Trace) -> bool:
    in_order = not any("out of order" in note for note in trace.notes)
    return in_order and not any(request.parent_id for request in trace)
