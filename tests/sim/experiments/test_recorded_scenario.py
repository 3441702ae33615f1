"""The scenario of a run folder, built again."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.recorded_scenario import recorded_scenario
from servetwin.sim.records.run import RunError, load_run
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.transform import limit
from tests.support.command import servetwin, with_server
from tests.support.paths import SAMPLE, SHEET_PROFILE

TRACE = limit(sample_trace(), 40)


def simulated(folder: Path, *more: str) -> Path:
    options = ("--kv-tokens", "4096", "--limit", "40", "--replications", "0", "--out", folder)
    done = servetwin("replay", SAMPLE, *with_server(*more), *options)
    assert done.code == 0, done.err
    return folder


def test_a_recorded_scenario_is_the_one_that_ran(tmp_path: Path) -> None:
    run = load_run(simulated(tmp_path / "run"))
    record = run.scenario
    scenario = recorded_scenario(record)
    assert scenario.policies == PolicyConfig(**record["policies"])
    again = run_once(TRACE, scenario, seed=record["seed"])
    pd.testing.assert_frame_equal(again.requests, run.requests)


@pytest.mark.parametrize(
    "more",
    [
        ("--technique", "weight-int4", "--without", "flash-attention"),
        ("--preset", "hf-transformers", "--technique", "kernel-fusion"),
    ],
)
def test_a_roofline_scenario_is_built_again(tmp_path: Path, more: tuple[str, ...]) -> None:
    options = ("--model", "llama-2-7b", "--hardware", "a100-80gb", *more)
    record = load_run(simulated(tmp_path / "run", *options)).scenario
    again = run_once(TRACE, recorded_scenario(record), seed=record["seed"])
    assert again.requests["e2e_s"].to_numpy() == pytest.approx(
        load_run(tmp_path / "run").requests["e2e_s"].to_numpy()
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"times": "layers:ops"}, "rests on more than a data sheet"),
        ({"policies": {"no_such": 1}}, "cannot be used again"),
        ({"profile": "no-such-profile"}, "no-such-profile"),
    ],
)
def test_scenarios_that_cannot_run_again_say_why(change: dict[str, Any], message: str) -> None:
    record = {"profile": "base-cpu", "policies": PolicyConfig().as_dict(), **change}
    with pytest.raises(ServetwinError, match=message):
        recorded_scenario(record)
    with pytest.raises(RunError, match="has no 'policies'"):
        recorded_scenario({})


def test_several_profiles_are_a_pool_each(tmp_path: Path) -> None:
    profiles = ("--profile", "base-cpu", "--profile", SHEET_PROFILE, "--replicas", "2")
    scenario = recorded_scenario(load_run(simulated(tmp_path / "run", *profiles)).scenario)
    names = [server.name for server in scenario.servers()]
    assert names == ["base-cpu", "base-cpu", "llama-3-8b-h100", "llama-3-8b-h100"]
