"""A recorded run as one of our run folders: what was sent, and what came back when.

Beside the files of a load test the folder has ``trace.jsonl``, the requests as they were sent, so
that the same load can be simulated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from servetwin.loadtest.recorded.reading import read_recording
from servetwin.loadtest.recorded.recording import RecordedRequest, Recording
from servetwin.loadtest.report.records import requests_frame
from servetwin.loadtest.report.rows import UNSEEN, Row
from servetwin.loadtest.report.server_metrics import load_server_metrics
from servetwin.sim.records.run import Files, Run, RunError, load_run, machine_facts, save_files
from servetwin.workloads.errors import TraceError
from servetwin.workloads.readers.native import trace_text
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace

TRACE = "trace.jsonl"
_FIRST = ("first_token_s", "first_event_s", "first_sure_s", "first_output_s")


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A measured run, the requests that were sent in it, and what its server said meanwhile."""

    run: Run
    trace: Trace
    server: pd.DataFrame | None = None

    def save(self, folder: Path) -> Path:
        """Write the run folder; raises ``NotSaved`` as ``Run.save`` does."""
        save_files(folder, self._files)
        return folder

    def _files(self) -> Files:
        files = dict(self.run.files())
        summary = files.popitem()  # stays the last one: its presence means complete
        yield from files.items()
        yield TRACE, trace_text(self.trace).encode()
        yield summary


def load_recorded_run(folder: Path, columns: Mapping[str, str] | None = None) -> RecordedRun:
    """Read the folder of an imported run, or of a load test of ours, or a file to be imported.

    ``columns`` as in ``read_recording``, for a file. Raises ``RunError`` for a folder that is no
    run, or a simulated one.
    """
    if folder.is_file():
        return as_recorded_run(read_recording(folder, columns), folder.name)
    if columns:
        raise RunError(f"--map: {folder} is a run folder; its columns are known")
    run = load_run(folder)
    if run.kind != "loadtest":
        raise RunError(f"{folder}: a simulation; a recorded run was measured (loadtest import)")
    path = folder / TRACE
    trace = read_trace(path) if path.exists() else _trace_of(run, folder)
    return RecordedRun(run, trace, load_server_metrics(folder))


def as_recorded_run(recording: Recording, source: str) -> RecordedRun:
    """Return the run of a recording; its clock begins with the first arrival.

    Raises ``TraceError`` where arrivals are missing: the load cannot be known then.
    """
    arrivals = [one.arrival_s for one in recording.requests]
    missing = sum(arrival is None for arrival in arrivals)
    if missing or not arrivals:
        raise TraceError(
            f"{source}: {missing} of {counted(len(arrivals), 'request')} have no arrival time, so "
            f"the load cannot be replayed: {recording.no_arrivals}"
        )
    zero_s = min(arrival for arrival in arrivals if arrival is not None)
    requests = sorted(recording.requests, key=lambda one: one.arrival_s or 0.0)
    notes = (*recording.notes, *_notes(requests))
    trace = Trace(
        tuple(_request(one, zero_s) for one in requests if one.error is None), source, notes=notes
    )
    run = Run(
        "loadtest",
        requests_frame([_row(one, zero_s) for one in requests]),
        pd.DataFrame(),
        scenario={"trace": source, "recorded_by": recording.tool, "notes": list(notes)},
        meta=machine_facts(),
    )
    return RecordedRun(run, trace)


def _notes(requests: list[RecordedRequest]) -> list[str]:
    finished = [one for one in requests if one.error is None]
    notes = []
    if len(finished) < len(requests):
        failed = len(requests) - len(finished)
        notes.append(
            f"{counted(failed, 'failed request')}: not simulated, though the server had it"
        )
    for name, lacking in (
        ("first token", sum(one.first_token_s is None for one in finished)),
        ("last token", sum(one.last_token_s is None for one in finished)),
    ):
        if lacking:
            notes.append(f"{counted(lacking, 'request')} without the stamp of the {name}")
    return notes


def _request(one: RecordedRequest, zero_s: float) -> Request:
    return Request(
        one.request_id,
        (one.arrival_s or 0.0) - zero_s,
        one.prompt_tokens,
        one.output_tokens,
        prefix_block_ids=one.prefix_block_ids,
        block_tokens=one.block_tokens,
    )


def _row(one: RecordedRequest, zero_s: float) -> Row:
    stamps_s = dict.fromkeys(("scheduled_s", "sent_s"), one.arrival_s)
    stamps_s |= dict.fromkeys(_FIRST, one.first_token_s) | {"last_token_s": one.last_token_s}
    return {
        **UNSEEN,
        **{name: np.nan if at_s is None else at_s - zero_s for name, at_s in stamps_s.items()},
        "request_id": one.request_id,
        "status": "finished" if one.error is None else "failed",
        "prompt_tokens": one.prompt_tokens,
        "output_tokens": one.output_tokens,
        "cached_tokens": one.cached_tokens or 0,
        "queue_s": np.nan if one.queue_s is None else one.queue_s,
        "error": one.error,
        "first_chunk_tokens": 1,
        "first_chunk_told": False,
        "tokens_from": "recording",
        "asked_output_tokens": one.output_tokens,
        "chunk_s": np.array(one.chunk_s) - zero_s,
        "response_id": None,
        "attempts": 1,
        "model": "",
        "cached_reported": one.cached_tokens is not None,
        "usage_doubt": None,
        "buffered": False,
    }


def _trace_of(run: Run, folder: Path) -> Trace:
    """Return the requests of a load test of ours, by what its clients saw."""
    finished = run.requests[run.requests["status"] == "finished"].sort_values("scheduled_s")
    columns = finished[["request_id", "sent_s", "prompt_tokens", "output_tokens"]]
    requests = tuple(
        Request(str(name), float(sent_s), int(prompt_tokens), int(output_tokens))
        for name, sent_s, prompt_tokens, output_tokens in columns.itertuples(index=False)
    )
    if not requests:
        raise RunError(f"{folder}: no request finished")
    return Trace(requests, str(run.scenario.get("trace", folder)), notes=("without prefix ids",))
