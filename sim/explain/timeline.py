"""A run as a Chrome trace, which Perfetto (https://ui.perfetto.dev) and chrome://tracing open.

An array of events with times in microseconds. Process 1 has a track per request, with a slice for
every span of ``sim.explain.spans``; process 2 a track per replica, with a slice for every run of
equal steps, and counters of KV memory and of sequences. Requests that did not finish are instants.
"""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from servetwin.sim.explain.spans import RequestSpans, StepRows
from servetwin.sim.records.run import Run, RunError
from servetwin.workloads.errors import os_errors
from servetwin.workloads.files import Drafts

Event = dict[str, Any]

REQUESTS, REPLICAS = 1, 2
_NAMES = {REQUESTS: "requests", REPLICAS: "replicas"}


def trace_events(
    run: Run, spans: RequestSpans, start_s: float = 0.0, end_s: float = float("inf")
) -> Iterator[Event]:
    """Yield the events of all that overlaps a window; slices are not cut."""
    for process, name in _NAMES.items():
        yield _named("process_name", process, 0, name)
    yield from _requests(run, spans, start_s, end_s)
    for replica, steps in spans.steps.items():
        yield _named("thread_name", REPLICAS, replica, f"replica {replica}")
        yield from _replica(run, replica, steps, steps.touching(start_s, end_s))


def write_trace(path: Path, events: Iterator[Event]) -> int:
    """Write events as a JSON array, one per line, and return their number.

    Raises ``RunError`` if ``path`` cannot be written.
    """
    encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
    count = 0
    unwritten = os_errors(RunError, f"{path}: the trace cannot be written")
    with unwritten, Drafts() as drafts, drafts.of(path).open("w") as file:
        for count, event in enumerate(events, start=1):
            file.write(("[\n" if count == 1 else ",\n") + encode(event))
        file.write("\n]\n" if count else "[]\n")
    return count


def _requests(run: Run, spans: RequestSpans, start_s: float, end_s: float) -> Iterator[Event]:
    columns = run.requests[["request_id", "status", "scheduled_s", "error"]]
    for row, (name, status, scheduled_s, error) in enumerate(columns.itertuples(index=False)):
        if status != "finished":
            events = [_instant(row, status, scheduled_s, str(error or ""))]
            inside = start_s <= scheduled_s < end_s
        else:
            lasting = spans.of(row)
            events = [_slice(REQUESTS, row, *span, {}) for span in lasting]
            inside = bool(lasting) and lasting[0].start_s < end_s and lasting[-1].end_s > start_s
        if inside:
            yield from chain([_named("thread_name", REQUESTS, row, name)], events)


def _replica(run: Run, replica: int, steps: StepRows, rows: pd.DataFrame) -> Iterator[Event]:
    held = f"replica {replica}: KV tokens"
    counted = f"replica {replica}: sequences"
    capacity = _capacity_tokens(run, steps)
    columns = ["start_s", "end_s", "steps", "decode_sequences", "prefill_chunks", "rows",
               "decode_context_tokens", "running", "waiting", "free_kv_tokens"]  # fmt: skip
    last_s = 0.0
    for row in zip(*(rows[name].tolist() for name in columns), strict=True):
        start_s, last_s, count, decodes, chunks, matrix_rows, context, running, waiting, free = row
        numbers = {"steps": count, "rows": matrix_rows, "decode_context_tokens": context}
        yield _slice(REPLICAS, replica, _batch_name(decodes, chunks), start_s, last_s, numbers)
        yield _counter(replica, held, start_s, {"held": max(0, capacity - free)})
        yield _counter(replica, counted, start_s, {"running": running, "waiting": waiting})
    if len(rows):
        yield _counter(replica, counted, last_s, {"running": 0, "waiting": 0})


def _capacity_tokens(run: Run, steps: StepRows) -> int:
    """Return the KV memory of the policies; without one, the most tokens that were ever free."""
    stated = (run.scenario.get("policies") or {}).get("kv_tokens")
    return int(stated if stated else steps.frame["free_kv_tokens"].max())


def _batch_name(decodes: int, chunks: int) -> str:
    names = [f"{n} {name}" for n, name in ((chunks, "prefill"), (decodes, "decode")) if n]
    return " + ".join(names) or "empty"


def _slice(
    process: int, track: int, name: str, start_s: float, end_s: float, args: dict[str, Any]
) -> Event:
    duration_us = round(_us(end_s) - _us(start_s), 3)
    return _event("X", process, track, name, args, ts=_us(start_s), dur=duration_us)


def _instant(track: int, name: str, at_s: float, reason: str) -> Event:
    return _event("i", REQUESTS, track, name, {"reason": reason}, ts=_us(at_s), s="t")


def _counter(replica: int, name: str, at_s: float, values: dict[str, int]) -> Event:
    return _event("C", REPLICAS, replica, name, values, ts=_us(at_s))


def _named(kind: str, process: int, track: int, name: str) -> Event:
    return _event("M", process, track, kind, {"name": name})


def _event(phase: str, process: int, track: int, name: str, args: Event, **more: Any) -> Event:
    return {"ph": phase, "pid": process, "tid": track, "name": name, **more, "args": args}


def _us(seconds: float) -> float:
    """Return microseconds, rounded to the nanosecond: equal stamps stay equal."""
    return round(seconds * 1e6, 3)
