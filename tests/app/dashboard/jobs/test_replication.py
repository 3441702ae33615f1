"""A replication in a process of its own is the one of a whole prediction."""

import pickle

import numpy as np
import pytest

from servetwin.app.dashboard.jobs.simulated_items import Replication, Summary, simulate_replication
from servetwin.app.scenario.files.scenario_file import parse_scenario
from servetwin.sim.experiments.predict import is_outside, run_once, workload_seed
from servetwin.sim.experiments.scenario import replicate
from servetwin.workloads.reading import sample_trace

SCENARIOS = {
    "generated": "workload: {requests: 40}",
    "sample": "workload: {source: sample, requests: 40}\ndeployment: {profile: base-cpu}",
    "uploaded": "workload: {source: mine, requests: 40}\ndeployment: {profile: base-cpu}",
}


def without_speed(summary: Summary) -> Summary:
    return {name: value for name, value in summary.items() if name != "simulation"}


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_number_is_its_place_in_the_whole(name: str) -> None:
    file = parse_scenario(SCENARIOS[name], "test")
    given = sample_trace() if name == "uploaded" else None
    trace = file.workload.trace(file.seed, {"mine": given} if given else None)
    scenario = file.build(trace)
    run = run_once(trace, scenario, seed=file.seed)
    whole = []
    for child in np.random.SeedSequence(file.seed).spawn(4)[1:]:
        drawn = file.redraw(workload_seed(child)) if name == "generated" else (trace, scenario)
        replicated = replicate(*drawn, child, draw=True, extrapolate=is_outside(run))
        whole.append(replicated.summary(file.slo.slo()))
    packed = pickle.dumps(given) if given else None
    one = [simulate_replication(Replication(file, n, is_outside(run), packed)) for n in (0, 1, 2)]
    assert [without_speed(found) for found in one] == [without_speed(found) for found in whole]
    assert one[0]["ttft_s"] != one[1]["ttft_s"]
