"""The same simulations by the pure and by the compiled core, each in a process of its own.

``python -m tests.support.both_builds`` is such a process: it reads pickled simulations from stdin
and writes what became of them.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
import pytest

from servetwin.app.cli import is_compiled
from servetwin.core_cache import PURE, kept
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.routers.replica_loads import RouterConfig
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.sim.core.recorder import Recorder
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.acceptance import Chain, Verifier
from servetwin.sim.step_times.profile import load_profile
from servetwin.sim.step_times.step_time import ApiLatency, NoiseSample, StepNoise
from servetwin.workloads.request import Request
from tests.support.paths import ROOT
from tests.support.random_runs import STEP_TIME, Clock, Opaque

NOISE = NoiseSample(np.array([0.9, 1.0, 1.3]))


class Outcome(NamedTuple):
    """All that a simulation found, to the last bit: floats as Python writes them, which is exact.

    ``requests`` has no trace of how many steps one event stood for.
    """

    requests: str
    steps: str


def on_one_server(
    config: PolicyConfig, requests: list[Request], macro: bool, clock: Clock
) -> Outcome:
    """Simulate one server."""
    noise = None if clock == "affine" else StepNoise(NOISE, np.random.default_rng(0))
    model = Opaque() if clock == "sampled" else STEP_TIME
    verifier = Verifier(Chain(0.7, config.draft_rows), 0) if config.draft_rows else None
    scheduler = build_scheduler(config)
    return outcome(
        simulate(requests, scheduler, model, noise=noise, macro=macro, verifier=verifier)
    )


def on_a_shipped_profile(
    name: str, config: PolicyConfig, requests: list[Request], macro: bool
) -> Outcome:
    """Simulate one server with a shipped profile, and the use of its memory."""
    model = load_profile(name).step_time("paged").model()
    recorder = Recorder(ApiLatency(0.002, 1e-6, 0.001, 1e-5), keep_usage=True)
    scheduler = build_scheduler(config)
    return outcome(simulate(requests, scheduler, model, recorder=recorder, macro=macro))


def on_a_cluster(
    config: PolicyConfig, router: str, requests: list[Request], macro: bool, staleness_s: float
) -> Outcome:
    """Simulate three servers behind a router."""
    pools = [Pool(config, STEP_TIME, replicas=2, noise=NOISE), Pool(config, STEP_TIME, speed=2.0)]
    settings = RouterConfig(router, staleness_s)
    return outcome(simulate_cluster(requests, pools, settings, macro=macro))


def without_latencies() -> Outcome:
    """Give a recorder latencies that are all 0, and one that is not."""
    return Outcome(repr(Recorder(ApiLatency()).api), repr(Recorder(ApiLatency(1.0)).api))


def outcome(run: Run) -> Outcome:
    """Return what a run found."""
    stamps = [frame.to_dict("list") for frame in (run.requests, run.pauses, run.handovers)]
    return Outcome(repr(stamps), repr(run.steps.to_dict("list")))


class Build:
    """A process that simulates with the compiled core, or the ``pure`` one."""

    def __init__(self, *, pure: bool) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.both_builds"],
            cwd=ROOT,
            env={**os.environ, PURE: "1" if pure else ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.is_compiled: bool = self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def run(self, simulation: Callable[..., Outcome], *args: Any) -> Outcome:
        """Return what one of the simulations of this file finds."""
        assert self._process.stdin is not None
        pickle.dump((simulation.__name__, args), self._process.stdin)
        self._process.stdin.flush()
        return Outcome(*self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return pickle.load(self._process.stdout)


def require_compiled() -> None:
    """Skip the test where the sources at hand are not compiled."""
    if not kept(ROOT).is_dir():
        pytest.skip("these sources are not compiled; make core does that")


def main() -> None:
    """Simulate what stdin asks for."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    pickle.dump(is_compiled(), out)
    out.flush()
    while True:
        try:
            name, args = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(_found(globals()[name], args), out)
        out.flush()


def _found(simulation: Callable[..., Outcome], args: tuple[Any, ...]) -> tuple[str, str]:
    """Return what a simulation finds; an error, too, is to be the same in both builds."""
    try:
        found = simulation(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}", ""
    return found.requests, found.steps


if __name__ == "__main__":
    main()
