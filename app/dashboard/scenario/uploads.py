"""Traces that a user uploaded: of this session alone, bounded in size, read by the same readers as
on the command line."""

import gzip
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from pathlib import Path, PurePath

import streamlit as st

from app.dashboard.formatting import escaped, plain
from app.scenario.scenario_file import GENERATED, SAMPLE
from workloads.errors import ServetwinError, TraceError
from workloads.reading import read_trace
from workloads.trace import Trace

MOST_MB = 50
MOST_UNPACKED_MB = 200
MOST_REQUESTS = 200_000
MOST_KEPT = 4
_MB = 1_000_000
_GZIP_MAGIC = b"\x1f\x8b"
_TRACES, _PROBLEM, _TAKEN = "uploaded_traces", "trace_problem", "traces_taken"


@dataclass(frozen=True, slots=True)
class Upload:
    """A trace that was uploaded, and the digest of its file."""

    trace: Trace
    digest: str


def uploads() -> Mapping[str, Upload]:
    """Return the uploaded traces by name of the file."""
    found: dict[str, Upload] = st.session_state.setdefault(_TRACES, {})
    return found


def trace_uploader() -> None:
    """Draw an uploader that is empty again after each trace; what is wrong stands below."""
    taken = st.session_state.setdefault(_TAKEN, 0)
    st.file_uploader(
        "Your own trace", key=f"trace_upload_{taken}", on_change=_take, max_upload_size=MOST_MB,
        help="Azure CSV, Mooncake, BurstGPT, our JSON Lines ...: any format that replay reads. "
        "It stays in this session.",
    )  # fmt: skip
    if problem := st.session_state.get(_PROBLEM):
        st.error(escaped(problem))
    for name, upload in uploads().items():
        st.caption(f"{plain(name)}: {len(upload.trace):,} requests")


def read_upload(name: str, content: bytes) -> Trace:
    """Read the trace in ``content``; raises ``TraceError`` with the file's own name and line."""
    own_name = PurePath(name).name or "trace"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(_unpacked(own_name, content))
        try:
            trace = read_trace(path)
        except TraceError as error:
            raise TraceError(str(error).replace(str(path), own_name)) from None
    if len(trace) > MOST_REQUESTS:
        raise TraceError(f"{own_name}: {len(trace)} requests; at most {MOST_REQUESTS} here")
    return Trace(trace.requests, own_name, trace.clock_s, trace.notes)


def _unpacked(name: str, content: bytes) -> bytes:
    """Return the bytes, gzipped or not: a few bytes may stand for very many."""
    if content[:2] != _GZIP_MAGIC:
        return content
    try:
        found = gzip.GzipFile(fileobj=BytesIO(content)).read(MOST_UNPACKED_MB * _MB + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{name}: the gzip data are truncated or damaged ({error})") from None
    if len(found) > MOST_UNPACKED_MB * _MB:
        raise TraceError(f"{name}: more than {MOST_UNPACKED_MB} MB unpacked; take a part of it")
    return found


def _take() -> None:
    file = st.session_state[f"trace_upload_{st.session_state[_TAKEN]}"]
    if file is None:
        return
    st.session_state[_TAKEN] += 1  # an empty uploader: the same file can be taken again
    st.session_state[_PROBLEM] = None
    content = file.getvalue()
    try:
        trace = read_upload(file.name, content)
    except ServetwinError as error:
        st.session_state[_PROBLEM] = str(error)
        return
    name = f"own {file.name}" if file.name in (GENERATED, SAMPLE) else file.name
    _keep(name, Upload(trace, blake2b(content, digest_size=8).hexdigest()))
    st.session_state.update({"workload": name, "own_rate": True})


def _keep(name: str, upload: Upload) -> None:
    """Keep the newest few uploads."""
    kept: dict[str, Upload] = st.session_state.setdefault(_TRACES, {})
    kept.pop(name, None)
    kept[name] = upload
    while len(kept) > MOST_KEPT:
        del kept[next(iter(kept))]
