"""Runs for the tests of the dashboard: simulated scenarios, and a folder of runs of every kind."""

import json
from functools import cache
from pathlib import Path

from servetwin.app.dashboard.kept_runs.saved_scenario import save_run
from servetwin.app.dashboard.simulations import SimulatedScenario
from servetwin.app.dashboard.why.shown_run import ShownRun, from_simulation
from servetwin.app.scenario.files.scenario_file import ScenarioFile, Workload, parse_scenario
from servetwin.sim.experiments.predict import run_once
from tests.support.figure_frames import load_test

BUSY = ScenarioFile(
    workload=Workload(requests=300, rate_per_s=60.0),
    policies={"max_seqs": 32, "kv_tokens": 60_000},
    cluster={"replicas": 2},
)
QUANTISED = parse_scenario(
    "workload: {requests: 30, rate_per_s: 20}\n"
    "deployment: {model: llama-2-7b, gpu: a100-80gb, techniques: [weight-int4]}\n"
    "policies: {max_seqs: 8}\nseed: 3",
    "test",
)


def simulated_scenario(file: ScenarioFile) -> SimulatedScenario:
    """Simulate a scenario without a page and its caches."""
    trace = file.workload.trace(file.seed)
    scenario = file.build(trace)
    run = run_once(trace, scenario, seed=file.seed, keep_usage=True)
    return SimulatedScenario(file, "", trace, scenario, run, run.summary(file.slo.slo()))


@cache
def busy_run() -> ShownRun:
    """Return a run of two busy replicas; tests do not change it."""
    return from_simulation(simulated_scenario(BUSY))


@cache
def quantised() -> SimulatedScenario:
    """Return a simulated server of data sheets with a technique; tests do not change it."""
    return simulated_scenario(QUANTISED)


def fill_runs_folder(root: Path) -> None:
    """Put a run, a load test, a group of two, and everything that is no run into ``root``.

    ``root.parent`` gets a folder ``secret`` that links in ``root`` point to.
    """
    save_run(root, "mine", quantised())
    for name in ("measured", "group/one", "group/two", "newer", "holds-link"):
        load_test().save(root / name)
    (root / "foreign").mkdir()
    (root / "broken").mkdir()
    (root / "broken" / "meta.json").write_text("{")
    (root / "newer" / "meta.json").write_text(json.dumps({"kind": "hologram"}))
    secret = root.parent / "secret"
    secret.mkdir()
    (secret / "key").write_text("private")
    (root / "link").symlink_to(secret)
    (root / "holds-link" / "inner").symlink_to(secret)
