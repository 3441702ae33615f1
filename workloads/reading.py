"""Reading a trace in any known format, with errors that name the file, the line and the field."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from servetwin.workloads.errors import TraceError
from servetwin.workloads.files import is_directory, open_text
from servetwin.workloads.graphs.links import without_failed
from servetwin.workloads.program.collector import no_garbage_collection
from servetwin.workloads.readers import native
from servetwin.workloads.readers.dataset import is_dataset, read_dataset
from servetwin.workloads.readers.registry import READERS
from servetwin.workloads.request import Request
from servetwin.workloads.rows import BadRows, ReadingLimits, RowError, Rows, counted
from servetwin.workloads.tables.mapping import OPTION, Columns
from servetwin.workloads.trace import Trace, as_columns, column
from servetwin.workloads.transform import spread_ties as spread

# Above this share of equal neighbouring stamps a note warns of the ties.
MANY_TIES = 0.2


# The readers of our own traces, and of columns of any names.
NATIVE, TABLE = "native", "table"
_NO_HEADER_COLUMNS = (
    "--header-columns: wants prompts (CSV, JSON), chats, conversations, a table or a trace of "
    "servetwin"
)

# Default rate at which the sessions of a directory start, per second.
SESSION_RATE_PER_S = 0.1


def read_trace(
    path: str | Path,
    *,
    max_bad_rows: int = 0,
    seed: int = 0,
    spread_ties: bool = False,
    format: str | None = None,
    session_rate_per_s: float = SESSION_RATE_PER_S,
    keep_failed: bool = False,
    header_columns: Mapping[str, str] | None = None,
    limits: ReadingLimits | None = None,
    most_rows: int | None = None,
    columns: Columns | None = None,
) -> Trace:
    """Read a plain or gzipped trace; the format is seen from its first row unless it is named.

    ``format`` is a registered reader (``workloads.readers.registry``) or ``path.py:Class``. Parquet
    and Arrow files, and a directory of them, are a dataset of prompts
    (``workloads.readers.dataset``). Another directory is read as agentic sessions, one file each,
    which start at random (by ``seed``), ``session_rate_per_s`` on average.

    Up to ``max_bad_rows`` malformed rows are skipped and listed in the trace's notes. With
    ``spread_ties``, arrivals in one tick of a coarse clock are spread over it by ``seed``. Failed
    rows are left out unless ``keep_failed``, rows out of order are sorted (stably); both make a
    note. ``header_columns`` are columns with HTTP headers, by the names of these
    (``workloads.fields``). ``limits`` bound the rows of a text file and the time for them.
    A text file whose rows stand alone is read up to ``most_rows`` right rows; where there are more,
    the trace says that it was ``stopped``. ``columns`` say what the columns of a table hold
    (``workloads.tables.mapping``).

    Raises TraceError: one ``FILE:LINE: field 'NAME': reason (value)`` per bad row.
    """
    path, bad = Path(path), BadRows(max_bad_rows)
    _require_possible(path, format, columns)
    if is_dataset(path):
        trace = read_dataset(path, bad, header_columns or {})
    elif is_directory(path):
        trace = _read_sessions(path, bad, format, session_rate_per_s, seed)
    else:
        with open_text(path) as lines:
            rows = Rows(path, lines, bad, header_columns, limits, most_rows, columns)
            reader = TABLE if columns else find_reader(rows, format)
            with no_garbage_collection():
                trace = replace(READERS.build(reader).read(rows), stopped=rows.stopped)
    if header_columns and trace.requests and not any(trace.column("headers")):
        raise TraceError(f"{path}: {_NO_HEADER_COLUMNS}")
    trace = _tidied(trace, keep_failed, bad)
    if not trace.requests:
        raise TraceError("; ".join([f"{path}:1: no requests", *trace.notes]))
    return spread(trace, seed) if spread_ties else trace


def _read_sessions(
    path: Path, bad: BadRows, format: str | None, session_rate_per_s: float, seed: int
) -> Trace:
    from servetwin.workloads.readers import weka

    if format is not None and READERS.find(format) is not weka:
        raise TraceError(f"{path}: a directory: only weka sessions come as one, not {format}")
    return weka.read_directory(path, bad, session_rate_per_s, seed)


def _require_possible(path: Path, format: str | None, columns: Columns | None) -> None:
    """Raise ``TraceError`` for a reader, or columns of a table, that a path cannot have."""
    if columns and format not in (None, TABLE):
        raise TraceError(f"{OPTION}: is for the columns of a table, not with --reader {format}")
    if columns and (is_dataset(path) or is_directory(path)):
        raise TraceError(f"{OPTION}: {path} is no table; give a CSV or JSON Lines file")
    if format is not None and is_dataset(path):
        raise TraceError(f"{path}: a dataset is known by its files; leave --reader out")


def find_reader(rows: Rows, name: str | None) -> str:
    """Return the reader that was named, else the one that recognises the first row.

    Raises ``TraceError`` where none does.
    """
    line, row = rows.peek()
    if name is not None or native.is_header(row):
        return name or NATIVE
    for known in READERS:
        if READERS.build(known).recognises(row):
            return known
    known = ", ".join(READERS)
    wanted = f"no known trace format: wants the CSV header or the JSON objects of {known}"
    raise rows.failure(line, RowError("row", wanted, row))


def _tidied(trace: Trace, keep_failed: bool, bad: BadRows) -> Trace:
    """Bring a trace into the canonical form; each change makes a note, and so do bad rows."""
    notes = list(trace.notes)
    requests = trace.requests if keep_failed else without_failed(trace.requests)
    if failed := len(trace) - len(requests):
        notes.append(f"{counted(failed, 'failed row')} left out")
    requests = _with_fitting_ids(requests, notes)
    arrivals_s = column(requests, "arrival_s")
    if late := int((arrivals_s < np.maximum.accumulate(arrivals_s)).sum()):
        notes.append(f"{counted(late, 'row')} out of order: sorted by arrival")
        requests = as_columns(requests)[np.argsort(arrivals_s, kind="stable")]
    ties = np.count_nonzero(np.diff(np.sort(arrivals_s)) == 0)
    if trace.timed and ties > MANY_TIES * max(0, len(requests) - 1):
        notes.append(f"{ties / (len(requests) - 1):.1%} of rows share the stamp of the row before")
    _warn_of_followers(requests, notes)
    return replace(trace, notes=()).replaced(requests, *notes, *bad.notes)


def _with_fitting_ids(requests: Sequence[Request], notes: list[str]) -> Sequence[Request]:
    """Keep at most one id per started block; too few ids are kept, with a note."""
    names = ("prefix_block_ids", "block_tokens", "prompt_tokens")
    columns = (column(requests, name).tolist() for name in names)
    started = {
        row: -(-tokens // size)
        for row, (ids, size, tokens) in enumerate(zip(*columns, strict=True))
        if ids and size and not tokens // size <= len(ids) <= -(-tokens // size)
    }
    if not started:
        return requests
    notes.append(f"{counted(len(started), 'row')} whose ids do not fit the prompt: extra ids cut")
    changed = list(requests)
    for row, blocks in started.items():
        ids = changed[row].prefix_block_ids[:blocks]
        changed[row] = replace(changed[row], prefix_block_ids=ids, answer_block_ids=())
    return changed


def _warn_of_followers(requests: Sequence[Request], notes: list[str]) -> None:
    pairs = zip(column(requests, "parent_ids"), column(requests, "delay_s"), strict=True)
    followers = sum(bool(parents) and delay_s is not None for parents, delay_s in pairs)
    note = f"{counted(followers, 'row')} sent a delay after the parent: for closed-loop replay"
    if followers and note not in notes:  # a trace we wrote has said so already
        notes.append(note)


def sample_path() -> AbstractContextManager[Path]:
    """Yield the path of the bundled trace, valid inside the block."""
    return as_file(files("servetwin.workloads") / "scenarios" / "sample.jsonl")


def sample_trace() -> Trace:
    """Return the bundled trace; ``tests/workloads/generators/test_generate.py`` generates it."""
    with sample_path() as path:
        return read_trace(path)


# Rows that are read in any case: they show the clock of the source.
LEAST_ROWS = 1_000


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
            trace = read_trace(path, most_rows=rows, **options)
        except TraceError:
            break
        if not trace.stopped or not _stands_alone(trace):
            break
        if limit is not None and len(trace) >= limit:
            return trace
        rows *= 2  # some had failed
    return read_trace(path, spread_ties=spread_ties, **options)


def _stands_alone(trace: Trace) -> bool:
    in_order = not any("out of order" in note for note in trace.notes)
    return in_order and not any(trace.column("parent_ids"))
