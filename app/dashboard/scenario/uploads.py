"""Traces that a user uploaded: of this session alone, bounded in size, read by the same readers as
on the command line."""

import gzip
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from io import BytesIO
from pathlib import Path, PurePath

import streamlit as st

from app.dashboard.formatting import plain
from app.dashboard.widgets import keep_newest, uploader
from app.scenario.scenario_file import GENERATED, SAMPLE
from workloads.errors import TraceError
from workloads.reading import read_trace
from workloads.reading_limits import ReadingLimits
from workloads.sample import sample_trace
from workloads.trace import Trace

MOST_MB = 50
MOST_UNPACKED_MB = 50
MOST_REQUESTS = 200_000
MOST_KEPT = 4
READING_LIMITS = ReadingLimits(rows=MOST_REQUESTS + 1, seconds=20)
"""A header and as many requests."""
_MB = 1_000_000
_CHUNK_BYTES = 1 << 20
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


def whole_trace(source: str) -> Trace | None:
    """Return the whole bundled or uploaded trace of that name; None where there is none."""
    return _sample() if source == SAMPLE else given_trace(source)


_sample = cache(sample_trace)


def trace_uploader() -> None:
    """Draw the uploader, and what has been uploaded."""
    formats = "Azure CSV, Mooncake, BurstGPT, our JSON Lines ...: any format that replay reads."
    limits = f"At most {MOST_UNPACKED_MB} MB unpacked, {MOST_REQUESTS:,} requests."
    help_ = f"{formats} {limits} It stays in this session."
    uploader("Your own trace", "trace_upload", _take, max_upload_size=MOST_MB, help=help_)
    for name, upload in uploads().items():
        st.caption(f"{plain(name)}: {len(upload.trace):,} requests")


def read_upload(name: str, content: bytes) -> Trace:
    """Read the trace in ``content``; raises ``TraceError`` with the file's own name and line.

    What unpacks to too much is refused while it is unpacked; too many rows, or too slow ones, while
    they are read.
    """
    own_name = PurePath(name).name or "trace"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        with path.open("wb") as file:
            for chunk in _unpacked(own_name, content):
                file.write(chunk)
        try:
            trace = read_trace(path, limits=READING_LIMITS)
        except TraceError as error:
            raise TraceError(str(error).replace(str(path), own_name)) from None
    if len(trace) > MOST_REQUESTS:  # the rows of a session stand for several
        raise TraceError(f"{own_name}: {len(trace):,} requests; at most {MOST_REQUESTS:,} here")
    return Trace(trace.requests, own_name, trace.clock_s, trace.notes)


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


def _take(file_name: str, content: bytes) -> None:
    digest = blake2b(content, digest_size=8).hexdigest()
    upload = Upload(read_upload(file_name, content), digest)
    name = f"own {file_name}" if file_name in (GENERATED, SAMPLE) else file_name
    uploads().pop(name, None)
    keep_newest(uploads(), {name: upload}, MOST_KEPT)
    st.session_state.update({"workload": name, "own_rate": True})
