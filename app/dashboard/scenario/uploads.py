"""Traces that a user uploaded: of this session alone, bounded in size, read by the same readers as
on the command line."""

import gzip
import tempfile
import zlib
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from pathlib import Path, PurePath

import streamlit as st

from app.dashboard.formatting import plain
from app.dashboard.widgets import keep_newest, uploader
from app.scenario.scenario_file import GENERATED, SAMPLE
from workloads.errors import TraceError
from workloads.reading import read_trace
from workloads.trace import Trace

MOST_MB = 50
MOST_UNPACKED_MB = 200
MOST_REQUESTS = 200_000
MOST_KEPT = 4
_MB = 1_000_000
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Upload:
    """A trace that was uploaded, and the digest of its file."""

    trace: Trace
    digest: str


def uploads() -> dict[str, Upload]:
    """Return the uploaded traces by name of the file."""
    found: dict[str, Upload] = st.session_state.setdefault("uploaded_traces", {})
    return found


def given_trace(source: str) -> Trace | None:
    """Return the uploaded trace of that name; None where there is none."""
    upload = uploads().get(source)
    return upload.trace if upload else None


def trace_uploader() -> None:
    """Draw the uploader, and what has been uploaded."""
    formats = "Azure CSV, Mooncake, BurstGPT, our JSON Lines ...: any format that replay reads."
    help_ = f"{formats} It stays in this session."
    uploader("Your own trace", "trace_upload", _take, max_upload_size=MOST_MB, help=help_)
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


def _take(file_name: str, content: bytes) -> None:
    digest = blake2b(content, digest_size=8).hexdigest()
    upload = Upload(read_upload(file_name, content), digest)
    name = f"own {file_name}" if file_name in (GENERATED, SAMPLE) else file_name
    uploads().pop(name, None)
    keep_newest(uploads(), {name: upload}, MOST_KEPT)
    st.session_state.update({"workload": name, "own_rate": True})
