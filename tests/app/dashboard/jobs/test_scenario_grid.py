"""Grids of scenarios: values that are read, scenarios that they make, figures of a point."""

import pickle

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.jobs.simulated_items import (
    GridScenario,
    parse_numbers,
    simulate_point,
    with_values,
)
from servetwin.app.scenario.files.scenario_file import ScenarioFile, Workload
from servetwin.sim.experiments.sweep import PROBLEM
from servetwin.workloads.reading import sample_trace

SMALL = ScenarioFile(workload=Workload(requests=60))


@pytest.mark.parametrize(
    ("axis", "text", "values"),
    [
        ("rate", "2, 4 8", [2, 4, 8]),
        ("rate", "", []),
        ("max_seqs", "16,16,64", [16, 64]),
        ("replicas", "1", [1]),
    ],
)
def test_values_are_read(axis: str, text: str, values: list[float]) -> None:
    assert parse_numbers(text, axis) == values


def test_values_lie_over_the_scenario_and_nothing_else_changes() -> None:
    base = ScenarioFile(policies={"batching": "chunked"}, cluster={"router": "random"})
    file = with_values(base, {"rate": 3.0, "max_seqs": 8, "token_budget": 64, "replicas": 2})
    assert file.workload == base.workload.model_copy(update={"rate_per_s": 3.0})
    assert file.policies == {"batching": "chunked", "max_seqs": 8, "token_budget": 64}
    assert file.cluster == {"router": "random", "replicas": 2}
    assert with_values(base, {}) == base


def test_a_scene_has_the_figures_of_its_scenario_or_its_problem() -> None:
    row = simulate_point(GridScenario(with_values(SMALL, {"rate": 4.0, "replicas": 2})))
    assert (row["servers"], row["finished"], row[PROBLEM]) == (2, 60, "")
    assert row["goodput_per_server_per_s"] == row["goodput_per_s"] / 2
    given = ScenarioFile(workload=Workload(source="mine", requests=30, rate_per_s=None))
    assert simulate_point(GridScenario(given, pickle.dumps(sample_trace())))["finished"] == 30
    assert "mine" in simulate_point(GridScenario(given))[PROBLEM]
    broken = SMALL.over({"kv": "contiguous", "prefix_cache": True}, {})
    assert simulate_point(GridScenario(broken))[PROBLEM]
