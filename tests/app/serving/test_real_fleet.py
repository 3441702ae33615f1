"""A real fleet: four served simulators behind a router, one killed at half time, as predicted."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Timer

import numpy as np
import pytest

from servetwin.app.scenario.options.deployment import Deployment
from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.run.client import run_load_test
from servetwin.policies.build import build_scheduler
from servetwin.policies.routers.replica_loads import RouterConfig
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.faults import parse_faults
from servetwin.sim.core.fleet.gateway import FleetPlan
from servetwin.sim.core.pools import Pool
from servetwin.sim.records.run import Run
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.paths import ROOT

pytest.importorskip("uvicorn")
pytestmark = [pytest.mark.slow, pytest.mark.quiet, pytest.mark.timeout(180)]

SERVERS, RATE_PER_S, REQUESTS = 4, 24.0, 360
MODEL, GPU = "llama-2-13b", "a100-80gb"
OFF = 0.1
"""As far as a verdict lets a figure be off."""
LIMIT_S = 0.18
"""TTFT that most requests keep, and not all."""


def load() -> Trace:
    draws = np.random.default_rng(7)
    at_s = np.cumsum(draws.exponential(1 / RATE_PER_S, REQUESTS)).tolist()
    prompts, outputs = draws.integers(100, 700, REQUESTS), draws.integers(20, 140, REQUESTS)
    rows = zip(at_s, prompts.tolist(), outputs.tolist(), strict=True)
    return Trace(tuple(Request(str(n), *row) for n, row in enumerate(rows)), "made")


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a process of ours; yield it with the URL that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        yield process, line[line.index("http://") :].split()[0]
    finally:
        process.kill()
        process.communicate()


FEW = Trace(tuple(Request(f"few {n}", 0.3 * n, 400, 4) for n in range(12)), "few")
"""Requests that meet nobody: what is not of their steps is the way there and back."""


def measured(trace: Trace, killed_at_s: float) -> tuple[Run, Run]:
    """Return what a few requests alone measured, and the load whose first server is killed."""
    serve = ("servetwin", "serve", "--model", MODEL, "--gpu", GPU, "--port", "0")
    with ExitStack() as stack:
        servers = [stack.enter_context(started(*serve)) for _ in range(SERVERS)]
        urls = [url for _, url in servers]
        _, url = stack.enter_context(started("tests.support.gateway", *urls))
        endpoint = probe(url)
        few = run_load_test(endpoint, FEW)
        killing = Timer(killed_at_s, os.kill, (servers[0][0].pid, signal.SIGKILL))
        killing.start()
        return few, run_load_test(endpoint, trace)


def predicted(trace: Trace, killed_at_s: float, replica: int) -> Run:
    scenario = Deployment(model=MODEL, gpu=GPU).scenario()
    step_time = scenario.profile.step_time(build_scheduler(scenario.policies).memory.layout)
    pools = [Pool(scenario.policies, step_time.model(), SERVERS)]
    faults = parse_faults(f"crash:replica={replica},at_s={killed_at_s}")
    plan = FleetPlan(SERVERS, faults, detection_s=0.0, retries=3)
    return simulate_cluster(trace, pools, RouterConfig("least-outstanding"), fleet=plan)


def kept(run: Run, way_s: float = 0.0) -> float:
    """Return the share of all requests that have a first token in time, with the way there."""
    return float((run.requests["ttft_s"] + way_s <= LIMIT_S).mean())


def test_a_killed_server_costs_the_requests_that_were_predicted() -> None:
    trace = load()
    half_s = trace.span_s / 2
    few, real = measured(trace, half_s)
    alone = predicted(FEW, 1000.0, 0)
    way_s = float((few.requests["ttft_s"] - alone.requests["ttft_s"]).median())
    twins = [predicted(trace, half_s, replica) for replica in range(SERVERS)]
    failed = [int((one.requests["status"] != "finished").sum()) for one in (real, *twins)]
    shares = [kept(real), *(kept(one, way_s) for one in twins)]
    assert len(real.requests) == REQUESTS
    assert min(failed[1:]) - 4 <= failed[0] <= max(failed[1:]) + 4
    assert min(shares[1:]) - OFF <= shares[0] <= max(shares[1:]) + OFF
