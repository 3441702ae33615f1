"""The Chrome trace of a run."""

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from servetwin.sim.explain.explain import Explainer
from servetwin.sim.explain.timeline import REPLICAS, REQUESTS, Event, trace_events, write_trace
from servetwin.sim.records.run import Run, RunError
from tests.support.checked import request
from tests.support.explained_runs import (
    CONFIG,
    SERVER_S,
    STORY,
    STORY_S,
    random_requests,
    simulated,
)

KEYS = {
    "X": {"ph", "pid", "tid", "name", "ts", "dur", "args"},
    "C": {"ph", "pid", "tid", "name", "ts", "args"},
    "M": {"ph", "pid", "tid", "name", "args"},
    "i": {"ph", "pid", "tid", "name", "ts", "s", "args"},
}


def check_event(event: Event) -> None:
    """The trace event format, as far as these four kinds of events go."""
    assert set(event) == KEYS[event["ph"]]
    assert all(isinstance(event[key], int) for key in ("pid", "tid"))
    assert isinstance(event["name"], str)
    assert all(event.get(key, 0) >= 0 for key in ("ts", "dur"))
    if event["ph"] == "M":
        assert event["name"] in ("process_name", "thread_name")
        assert isinstance(event["args"]["name"], str)
    if event["ph"] == "C":
        assert all(isinstance(value, int) and value >= 0 for value in event["args"].values())


def exported(run: Run, path: Path, *window_s: float) -> list[Event]:
    count = write_trace(path, trace_events(run, Explainer(run).spans, *window_s))
    events: list[Event] = json.loads(path.read_text())
    assert len(events) == count
    return events


def tracks(events: list[Event], process: int) -> dict[int, list[Event]]:
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["pid"] == process:
            found[event["tid"]].append(event)
    return found


def test_every_event_is_valid_and_slices_of_a_track_never_overlap(tmp_path: Path) -> None:
    config = replace(CONFIG, kv_tokens=640)
    requests = [*random_requests(3, 60, 40), request("long", 9.0, 5_000, 2)]
    run = simulated(requests, config, SERVER_S)
    assert len(run.pauses)
    events = exported(run, tmp_path / "trace.json")
    for event in events:
        check_event(event)
    by_request = tracks(events, REQUESTS)
    finished = run.requests["status"] == "finished"
    assert set(by_request) == set(np.flatnonzero(finished))
    for row, slices in by_request.items():
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in pairwise(slices))
        lasting_us = sum(s["dur"] for s in slices)
        assert lasting_us == pytest.approx(1e6 * run.requests["e2e_s"][row], abs=0.01)
    names = {s["name"] for slices in by_request.values() for s in slices}
    assert names == {"queue", "prefill", "decode", "preempted"}
    assert [e["name"] for e in events if e["ph"] == "i"] == ["refused"] * int((~finished).sum())


def test_replicas_have_a_slice_per_row_and_counters_of_memory_and_sequences(tmp_path: Path) -> None:
    run = simulated(STORY, CONFIG, STORY_S)
    events = exported(run, tmp_path / "trace.json")
    slices = tracks(events, REPLICAS)[0]
    assert [(s["name"], s["ts"], s["dur"], s["args"]["steps"]) for s in slices] == [
        ("1 prefill", 0, 3e6, 1),
        ("1 prefill + 1 decode", 3e6, 3e6, 1),
        ("2 decode", 6e6, 1e6, 1),
        ("1 decode", 7e6, 2e6, 2),
    ]
    held = [e["args"]["held"] for e in events if e["ph"] == "C" and "KV" in e["name"]]
    assert held == [CONFIG.kv_tokens - free for free in run.steps["free_kv_tokens"]]
    counted = [e["args"] for e in events if e["ph"] == "C" and "sequences" in e["name"]]
    assert [c["running"] for c in counted] == [1, 2, 2, 1, 0]


def test_a_window_keeps_what_shares_time_with_it(tmp_path: Path) -> None:
    run = simulated(STORY, CONFIG, STORY_S)
    events = exported(run, tmp_path / "trace.json", 7.5, 8.0)
    assert set(tracks(events, REQUESTS)) == {0}, "b had its last token at 7"
    assert [s["name"] for s in tracks(events, REPLICAS)[0]] == ["1 decode"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"nowhere/t\.json: the trace cannot be written"):
        write_trace(tmp_path / "nowhere" / "t.json", iter([]))
