"""Small scenarios and traces for streams, and their runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.sim.core import recorder as flushing_recorder
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.long_runs import row_tables as row_groups
from servetwin.sim.long_runs.streamed_run import run_streamed, run_tables
from servetwin.sim.step_times.profile import load_profile
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.request import Request
from servetwin.workloads.streams.streamed_trace import StreamedTrace
from servetwin.workloads.streams.trace_file import TraceFile
from servetwin.workloads.trace import Trace
from tests.support.random_runs import policies, workloads

WITHOUT_NOISE, NOISY = load_profile("llama-3-8b-h100"), load_profile("base-cpu")
BATCHINGS = ("static", "continuous", "chunked", "prefill-first", "insertion")

clusters = st.builds(
    ClusterConfig,
    replicas=st.integers(2, 5),
    router=st.sampled_from(["round-robin", "random", "session-affinity"]),
)


@st.composite
def configs(draw: st.DrawFn) -> PolicyConfig:
    config = draw(st.sampled_from(BATCHINGS).flatmap(policies))
    return config if config.kv == "contiguous" else replace(config, kv="paged")


@st.composite
def traces(draw: st.DrawFn) -> list[Request]:
    """Draw one workload after the other, so that the server is empty now and then."""
    requests: list[Request] = []
    now_s = 0.0
    for part in range(draw(st.integers(1, 4))):
        for request in draw(workloads()):
            name, arrival_s = f"{part}-{request.request_id}", now_s + request.arrival_s
            requests.append(replace(request, request_id=name, arrival_s=arrival_s))
        now_s = requests[-1].arrival_s + draw(st.sampled_from([0.0, 0.01, 1.0, 20.0]))
    return requests


def written(requests: list[Request], folder: Path) -> StreamedTrace:
    write_trace(Trace(tuple(requests), "made"), folder / "trace.jsonl")
    return StreamedTrace.open(TraceFile(folder / "trace.jsonl"))


@contextmanager
def small_pieces() -> Iterator[None]:
    """Hand rows on and write them a few at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flushing_recorder, "FLUSHED_ROWS", 4)
        patch.setattr(row_groups, "GROUP_ROWS", 8)
        yield


def streamed(
    trace: StreamedTrace, scenario: Scenario, folder: Path, macro: bool = True
) -> dict[str, bytes]:
    """Run; return what is in the run folder."""
    folder.mkdir()
    tables = run_tables(scenario, folder)
    run_streamed(trace, scenario, tables, seed=3, macro=macro)
    tables.save(tables.summary(0.0), {}, {})
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def summary_of(files: dict[str, bytes]) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(files["summary.json"])
    return summary
