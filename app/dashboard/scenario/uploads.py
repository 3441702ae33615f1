"""Traces that a user uploaded: of this session alone, bounded in size, read by the same readers as
on the command line."""

import gzip
import pickle
import shlex
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from io import BytesIO
from pathlib import Path, PurePath

import streamlit as st

from servetwin.app.dashboard.formatting import escaped, page_text, plain
from servetwin.app.dashboard.widgets import is_changed, note_drawn, set_controls, uploader
from servetwin.app.scenario.files.scenario_file import GENERATED, SAMPLE, ScenarioFile
from servetwin.app.scenario.setting_docs import setting_docs
from servetwin.workloads.errors import TraceError
from servetwin.workloads.files import open_text
from servetwin.workloads.reading import TABLE, find_reader, read_trace, sample_trace
from servetwin.workloads.rows import BadRows, ReadingLimits, RowError, Rows
from servetwin.workloads.tables.mapping import parse_mapping
from servetwin.workloads.tables.moments import Content
from servetwin.workloads.tables.recognition import Recognition
from servetwin.workloads.tables.table import Cells, RowParser, Table, TableRow
from servetwin.workloads.trace import Trace

SHOWN_ROWS = 3


@dataclass(frozen=True, slots=True)
class OwnTable:
    """The file as it was uploaded, and what was seen of it."""

    name: str
    content: bytes
    recognition: Recognition
    sample: Sequence[Cells]
    comma: bool

    @property
    def names(self) -> list[str]:
        """The columns that have a name."""
        return [name for name in self.recognition.names if name]

    def is_text(self, name: str) -> bool:
        """Return whether a column has words rather than counts."""
        return Content.of([cells.get(name, "") for cells in self.sample], self.comma).are_texts

    def has(self, columns: Mapping[str, str]) -> bool:
        """Return whether it has all columns of a mapping."""
        return {*columns.values()} <= {*self.names}

    def read_rows(self, columns: Mapping[str, str]) -> list[dict[str, str]]:
        """Return the first rows as they are read by a mapping, or what is wrong with them."""
        parser, shown, first_ns = RowParser(columns, self.comma), [], None
        for cells in self.sample[:SHOWN_ROWS]:
            try:
                row = parser.parse(0, cells)
            except RowError as error:
                shown.append({"outcome": f"wrong: {error}"})
                continue
            first_ns = row.arrival_ns if first_ns is None else first_ns
            lengths = {name: row.counts.get(f"{name}_tokens") for name in ("prompt", "output")}
            shown.append(
                {
                    "arrival, s": f"{(row.arrival_ns - first_ns) / 1e9:+.3f}",
                    **{f"{name} tokens": _shown(count, row) for name, count in lengths.items()},
                    "outcome": "answered" if row.failure is None else f"failed: {row.failure}",
                }
            )
        return shown


def _shown(count: int | None, row: TableRow) -> str:
    if count is not None:
        return f"{count:,}"
    return "of the text" if row.failure is None else ""


def own_table(name: str, path: Path, content: bytes) -> OwnTable | None:
    """Return the table in a file; None where the file has a format that is known.

    Raises ``TraceError`` for a file that is neither.
    """
    with open_text(path) as lines:
        rows = Rows(path, lines, BadRows(0))
        if find_reader(rows, None) != TABLE:
            return None
        table = Table(rows)
        if not table.sample:
            return None  # reading it says what is wrong
        return OwnTable(name, content, Recognition(table), table.sample, table.comma)


MOST_MB = 50
MOST_UNPACKED_MB = 50
MOST_REQUESTS = 200_000
MOST_KEPT = 4
# A header and as many requests.
READING_LIMITS = ReadingLimits(rows=MOST_REQUESTS + 1, seconds=20)
_MB = 1_000_000
_CHUNK_BYTES = 1 << 20
_FILE = "file-of-an-upload"
# The key of their control, in the session and in the link.
_COLUMNS = "columns"
_ASKED, _KNOWN, _PROBLEM = "asked_table", "known_columns", "columns_problem"
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Upload:
    """A trace that was uploaded, and the digest of its file.

    ``table`` is the file of a table, and ``columns`` what was said of them.
    """

    trace: Trace
    digest: str
    table: OwnTable | None = None
    columns: str | None = None


def uploads() -> dict[str, Upload]:
    """Return the uploaded traces by name of the file."""
    traces: dict[str, Upload] = st.session_state.setdefault("uploaded_traces", {})
    return traces


def workload_names() -> list[str]:
    """Return every workload that can be chosen."""
    return [GENERATED, SAMPLE, *uploads()]


def given(source: str) -> tuple[str, Trace | None]:
    """Return digest and trace of the upload of that name; empty and None where there is none."""
    upload = uploads().get(source)
    return (upload.digest, upload.trace) if upload else ("", None)


def packed(source: str) -> bytes | None:
    """Return the uploaded trace for other processes, pickled; None where there is none."""
    digest, trace = given(source)
    return _pickled(digest, trace) if trace else None


@st.cache_resource(max_entries=16, show_spinner=False)
def _pickled(digest: str, _trace: Trace) -> bytes:
    return pickle.dumps(_trace, pickle.HIGHEST_PROTOCOL)


def whole_trace(source: str) -> Trace | None:
    """Return the whole bundled or uploaded trace of that name; None where there is none."""
    return _sample() if source == SAMPLE else given(source)[1]


_sample = cache(sample_trace)


def result_keys(files: Sequence[ScenarioFile]) -> list[str]:
    """Return a key for what becomes of each scenario; files of the same name have other keys."""
    digests = {name: upload.digest for name, upload in uploads().items()}
    return [f"{digests.get(one.workload.source, '')} {one.model_dump_json()}" for one in files]


def trace_uploader() -> None:
    """Draw the uploader, and what has been uploaded."""
    help_ = page_text("scenario.uploads", megabytes=MOST_UNPACKED_MB, requests=MOST_REQUESTS)
    uploader("Your own trace", "trace_upload", _take, max_upload_size=MOST_MB, help=help_)
    for name, upload in uploads().items():
        failed = [note for note in upload.trace.notes if note.startswith("failed")]
        st.caption("; ".join([f"{plain(name)}: {len(upload.trace):,} requests", *failed]))


def asked_table() -> OwnTable | None:
    """Return the table that was uploaded, until it is said what its columns hold."""
    table: OwnTable | None = st.session_state.get(_ASKED)
    return table


def forget_asked_table() -> None:
    """Ask no longer."""
    st.session_state.pop(_ASKED, None)


def columns_of_table(name: str) -> None:
    """Draw the columns of an uploaded table, to be changed; nothing for any other workload."""
    upload = uploads().get(name)
    if upload is None or upload.table is None:
        return
    if is_changed(_COLUMNS):
        _remap(upload.table, st.session_state[_COLUMNS])
    columns = st.session_state[_COLUMNS] = upload.columns or ""
    if st.query_params.get(_COLUMNS) != columns:
        st.query_params[_COLUMNS] = columns  # a field that was not there before sets no link
    help_ = setting_docs()["workload.columns"].sentence
    note_drawn(_COLUMNS, st.text_input("Columns", help=help_, key=_COLUMNS))
    if problem := st.session_state.get(_PROBLEM):
        st.error(escaped(problem))
    ask = partial(st.session_state.update, {_ASKED: upload.table})
    st.button("See the first rows", on_click=ask, width="stretch")


def _remap(table: OwnTable, columns: str) -> None:
    st.session_state[_PROBLEM] = None
    try:
        add_table(table, columns)
    except TraceError as error:
        st.session_state[_PROBLEM] = str(error)
    else:
        st.rerun()


def remember_columns(name: str | None, columns: str | None) -> None:
    """Remember the mapping of a link or a scenario, for the table that will be uploaded."""
    if name and columns:
        st.session_state.setdefault(_KNOWN, {})[name] = columns


@contextmanager
def unpacked_file(name: str, content: bytes) -> Iterator[Path]:
    """Yield the path of an uploaded file; its errors name the file as the user does.

    What unpacks to too much is refused while it is unpacked.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _FILE
        with path.open("wb") as file:
            for chunk in _unpacked(name, content):
                file.write(chunk)
        try:
            yield path
        except TraceError as error:
            raise TraceError(_renamed(str(error), path, name)) from None


def read_upload(name: str, content: bytes, columns: str | None = None) -> Trace:
    """Read the trace in ``content``; raises ``TraceError`` with the file's own name and line.

    Too many rows, or too slow ones, are refused while they are read. ``columns`` is the mapping of
    a table.
    """
    own_name = PurePath(name).name or "trace"
    with unpacked_file(own_name, content) as path:
        mapping = parse_mapping(columns) if columns else None
        trace = read_trace(path, limits=READING_LIMITS, columns=mapping)
        notes = tuple(_renamed(note, path, own_name) for note in trace.notes)
    if len(trace) > MOST_REQUESTS:  # the rows of a session stand for several
        raise TraceError(f"{own_name}: {len(trace):,} requests; at most {MOST_REQUESTS:,} here")
    return Trace(trace.requests, own_name, trace.clock_s, notes)


def _unpacked(name: str, content: bytes) -> Iterator[bytes]:
    """Yield the bytes, gzipped or not, in pieces: a few bytes may stand for very many."""
    zipped = content[:2] == _GZIP_MAGIC
    file = gzip.GzipFile(fileobj=BytesIO(content)) if zipped else BytesIO(content)
    size_bytes = 0
    try:
        while chunk := file.read(_CHUNK_BYTES):
            size_bytes += len(chunk)
            if size_bytes > MOST_UNPACKED_MB * _MB:
                most = f"more than {MOST_UNPACKED_MB} MB unpacked"
                raise TraceError(f"{name}: {most}; take a part of it")
            yield chunk
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{name}: the gzip data are truncated or damaged ({error})") from None


def _renamed(text: str, path: Path, name: str) -> str:
    """Return a text that names an uploaded file as the user does, alone or with its folder."""
    return text.replace(str(path), name).replace(f" {path.name} ", f" {shlex.quote(name)} ")


def _take(file_name: str, content: bytes) -> None:
    own_name = PurePath(file_name).name or "trace"
    with unpacked_file(own_name, content) as path:
        table = own_table(own_name, path, content)
    if table is None:
        _add(file_name, content, None, None)
        return
    known = st.session_state.get(_KNOWN, {}).get(own_name)
    if known and table.has(parse_mapping(known)):
        add_table(table, known)
    else:
        st.session_state[_ASKED] = table


def add_table(table: OwnTable, columns: str) -> None:
    """Add a table whose columns hold what the mapping says. Raises ``TraceError``."""
    _add(table.name, table.content, table, columns)


def _add(file_name: str, content: bytes, table: OwnTable | None, columns: str | None) -> None:
    digest = blake2b(content + (columns or "").encode(), digest_size=8).hexdigest()
    upload = Upload(read_upload(file_name, content, columns), digest, table, columns)
    name = f"own {file_name}" if file_name in (GENERATED, SAMPLE) else file_name
    uploads().pop(name, None)
    uploads()[name] = upload
    while len(uploads()) > MOST_KEPT:
        del uploads()[next(iter(uploads()))]
    set_controls({"workload": name, "own_rate": True, _COLUMNS: columns})
