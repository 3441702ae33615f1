"""Traces that a user uploaded: of this session alone, bounded in size, read by the same readers as
on the command line."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path, PurePath

import streamlit as st

from workloads.errors import ServetwinError, TraceError
from workloads.reading import read_trace
from workloads.trace import Trace

_TRACES = "uploaded_traces"
_PROBLEM = "trace_problem"
MOST_MB = 50
MOST_REQUESTS = 200_000


@dataclass(frozen=True, slots=True)
class Upload:
    """A trace that was uploaded, and the digest of its file."""

    trace: Trace
    digest: str


def uploads() -> Mapping[str, Upload]:
    """By name of the file."""
    found: dict[str, Upload] = st.session_state.setdefault(_TRACES, {})
    return found


def trace_uploader() -> None:
    """Takes a trace; what is wrong with it stands below."""
    st.file_uploader(
        "Your own trace", key="trace_upload", on_change=_take, max_upload_size=MOST_MB,
        help="Azure CSV, Mooncake, BurstGPT, our JSON Lines ...: any format that replay reads.",
    )  # fmt: skip
    if problem := st.session_state.get(_PROBLEM):
        st.error(problem)


def read_upload(name: str, content: bytes) -> Trace:
    """The trace in ``content``; raises ``TraceError`` with the file's own name and line."""
    plain = PurePath(name).name
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / plain
        path.write_bytes(content)
        try:
            trace = read_trace(path)
        except TraceError as error:
            raise TraceError(str(error).replace(str(path), plain)) from None
    if len(trace) > MOST_REQUESTS:
        raise TraceError(f"{plain}: {len(trace)} requests; at most {MOST_REQUESTS} here")
    return Trace(trace.requests, plain, trace.clock_s, trace.notes)


def _take() -> None:
    file = st.session_state["trace_upload"]
    st.session_state[_PROBLEM] = None
    if file is None:
        return
    content = file.getvalue()
    try:
        trace = read_upload(file.name, content)
    except ServetwinError as error:
        st.session_state[_PROBLEM] = str(error)
        return
    st.session_state.setdefault(_TRACES, {})[file.name] = Upload(
        trace, blake2b(content, digest_size=8).hexdigest()
    )
    st.session_state.update({"workload": file.name, "own_rate": True})
