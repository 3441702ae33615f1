"""Grids of scenarios: values that are read, scenarios that they make, figures of a point."""

import pickle

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.jobs.simulated_items import (
    GridScenario,
    simulate_point,
    with_rate,
)
from servetwin.app.scenario.files.scenario_file import ScenarioFile, Workload
from servetwin.sim.experiments.sweep import PROBLEM
from servetwin.workloads.reading import sample_trace

SMALL = ScenarioFile(workload=Workload(requests=60))


def test_a_rate_lies_over_the_scenario_and_nothing_else_changes() -> None:
    base = ScenarioFile(policies={"batching": "chunked"}, cluster={"router": "random"})
    file = with_rate(base, 3.0)
    assert file.workload == base.workload.model_copy(update={"rate_per_s": 3.0})
    assert file.model_copy(update={"workload": base.workload}) == base


def test_a_scene_has_the_figures_of_its_scenario_or_its_problem() -> None:
    row = simulate_point(GridScenario(with_rate(SMALL.over({}, {"replicas": 2}), 4.0)))
    assert (row["servers"], row["finished"], row[PROBLEM]) == (2, 60, "")
    assert row["goodput_per_server_per_s"] == row["goodput_per_s"] / 2
    given = ScenarioFile(workload=Workload(source="mine", requests=30, rate_per_s=None))
    assert simulate_point(GridScenario(given, pickle.dumps(sample_trace())))["finished"] == 30
    assert "mine" in simulate_point(GridScenario(given))[PROBLEM]
    broken = SMALL.over({"kv": "contiguous", "prefix_cache": True}, {})
    assert simulate_point(GridScenario(broken))[PROBLEM]
