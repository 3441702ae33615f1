"""Small runs for reports: a simulation, and a load test that found the same."""

from dataclasses import replace
from pathlib import Path

import pytest

from servetwin.app.verdict.measured_facts import as_sent
from servetwin.sim.records.run import Run
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.transform import limit
from tests.support.command import servetwin, with_server
from tests.support.figure_frames import load_test
from tests.support.paths import SAMPLE

pytest.importorskip("plotly", reason="reports need plotly")


TRACE = limit(sample_trace(), 40)
POLICIES = ("--kv-tokens", "4096", "--limit", "40", "--replications", "0")


def simulated(folder: Path, *more: object) -> Path:
    done = servetwin("replay", SAMPLE, *with_server(*more), *POLICIES, "--out", folder)
    assert done.code == 0, done.err
    return folder


def pretended(predicted: Run, lag_s: float = 0.0, slower: float = 1.0) -> Run:
    """A load test that found exactly a simulation's times, or ``slower`` ones, ``lag_s`` late."""
    run = load_test(len(predicted.requests), lag_s)
    theirs = predicted.requests
    stamps = {"ttft_s": "first_token_s", "e2e_s": "last_token_s"}
    kept = ["request_id", "scheduled_s", "prompt_tokens", "output_tokens"]
    if "reasoning_tokens" in theirs:
        kept, stamps = [*kept, "reasoning_tokens"], {**stamps, "ttfo_s": "first_output_s"}
    frame = run.requests.assign(**{name: theirs[name] for name in kept})
    frame["sent_s"] = theirs["scheduled_s"] + lag_s
    for name in stamps.values():
        frame[name] = frame["sent_s"] + slower * (theirs[name] - theirs["scheduled_s"])
    frame["ttft_sent_s"] = frame["first_token_s"] - frame["sent_s"]
    frame = as_sent(replace(run, requests=frame)).requests
    frame["scheduled_s"] = theirs["scheduled_s"]
    for name, stamp in stamps.items():
        frame[name] = frame[stamp] - frame["scheduled_s"]
    return replace(run, requests=frame)
