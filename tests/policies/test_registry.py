"""Policies are found by name or loaded from one's own file; mistakes are named."""

from pathlib import Path

import pytest

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.registry import SCHEDULERS
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.errors import PluginError, PolicyError
from tests.support.checked import request

OWN_POLICY = """
from dataclasses import replace
from servetwin.policies.schedulers.continuous import ContinuousBatching

class OneAtATime(ContinuousBatching):
    def __init__(self, memory, config):
        super().__init__(memory, replace(config, max_seqs=1))
"""


def test_a_policy_of_ones_own_is_loaded_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(OWN_POLICY)
    scheduler = build_scheduler(PolicyConfig(batching=f"{path}:OneAtATime"))
    model = LinearStepTime.of({"constant": 1.0})
    run = simulate([request(name) for name in "ab"], scheduler, model)
    assert run.requests["last_token_s"].tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("continous", "did you mean 'continuous'?"),
        (
            "round-robin",
            f"known are {', '.join(sorted(SCHEDULERS))}",
        ),
    ],
)
def test_unknown_policies_are_named(name: str, message: str) -> None:
    with pytest.raises(PolicyError, match="batching") as caught:
        build_scheduler(PolicyConfig(batching=name))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [("x = 1", "has no class 'Policy'"), ("import nothing_here", "raised ModuleNotFoundError")],
)
def test_a_file_without_the_class_is_named(tmp_path: Path, source: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(source)
    with pytest.raises(PluginError) as caught:
        build_scheduler(PolicyConfig(batching=f"{path}:Policy"))
    assert message in str(caught.value)
