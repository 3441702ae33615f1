"""The preset ``vllm-v1`` decides every step as vLLM's own scheduler does."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.comparison import compare
from tests.conformance.drive import drive
from tests.conformance.own_server import OwnServer, policies_of
from tests.conformance.random_workloads import random_workload, with_adapters, with_drafts
from tests.conformance.vllm import INTERPRETER, compared, digest, started_vllm
from tests.conformance.workload import Step

RECORDED = json.loads(Path(__file__).with_name("vllm_decisions.json").read_text())
PYTHON = os.environ.get(INTERPRETER, sys.executable)
BUSY = 12
"""A workload with preemptions, a small memory and the gate."""


def own_steps(seed: int, **policies: object) -> list[Step]:
    workload = random_workload(seed)
    config = replace(policies_of(workload), **policies)  # type: ignore[arg-type]
    return drive(workload, OwnServer(config))


def test_decisions_are_those_that_vllm_made() -> None:
    """Only digests are kept: the command that is named in ``vllm.py`` shows where they part."""
    assert len(RECORDED["decisions"]) >= 40
    for seed, recorded in RECORDED["decisions"].items():
        assert digest(own_steps(int(seed))) == recorded, f"workload {seed}"


@pytest.mark.parametrize("mode", ["drafts", "drafts_ahead"])
@pytest.mark.parametrize("foreseen", [True, False])
def test_drafts_are_verified_as_by_vllm(mode: str, foreseen: bool) -> None:
    assert len(RECORDED[mode]) >= 25
    for seed, recorded in RECORDED[mode].items():
        workload = with_drafts(random_workload(int(seed)), ahead=mode == "drafts_ahead")
        steps = drive(workload, OwnServer(policies_of(workload), foreseen=foreseen))
        assert digest(steps) == recorded, f"workload {seed} with drafts"


def test_adapters_get_their_slots_as_in_vllm() -> None:
    assert len(RECORDED["adapters"]) >= 25
    for seed, recorded in RECORDED["adapters"].items():
        workload = with_adapters(random_workload(int(seed)))
        steps = drive(workload, OwnServer(policies_of(workload)))
        assert digest(steps) == recorded, f"workload {seed} with adapters"


def test_another_policy_is_seen_with_its_first_difference() -> None:
    workload = random_workload(BUSY)
    found = compare(workload, own_steps(BUSY), own_steps(BUSY, max_seqs=3))
    assert found.difference is not None
    assert 0 < found.equal < found.steps
    assert f"{found.equal} of {found.steps} steps" in found.line()
    assert found.line().endswith(found.difference)
    assert compare(workload, own_steps(BUSY), own_steps(BUSY)).difference is None


@pytest.mark.foreign
@pytest.mark.timeout(600)
def test_a_few_workloads_with_vllm_itself() -> None:
    if subprocess.run([PYTHON, "-c", "import vllm.v1.core.sched"], capture_output=True).returncode:
        pytest.skip(f"{INTERPRETER}: {PYTHON} has no vllm")
    with started_vllm(PYTHON) as vllm:
        for seed in (0, 2, 4, 12, 15, 20, 29):
            workload = random_workload(seed)
            if seed > BUSY:
                workload = with_drafts(workload, ahead=seed % 2 == 0)
            found = compared(workload, vllm.steps(workload))
            assert found.difference is None, found.line()
            assert found.steps > 100
