"""Lossless and system techniques change no token count."""

from dataclasses import replace

import pytest

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.techniques.registry import TECHNIQUES
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Experiment, Technique
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.request import Request
from tests.support.serving_techniques import SERVING, by_name, pair, simulated

EXACT = [name for name, t in TECHNIQUES.items() if t.kind == "system" or t.lossless]


def few(technique: Technique) -> list[Request]:
    """A few requests of the load under which a technique is judged."""
    experiment = technique.experiment or Experiment()
    return list(replace(experiment, saturated=16).all_at_once(seed=1))


def changed_outputs(technique: Technique) -> tuple[list[int], list[int]] | None:
    """Output tokens without and with it, on the first model for which it makes sense."""
    hardware = find_hardware("b200")
    for model in ("llama-2-7b", "mixtral-8x7b", "mamba-2.8b", "deepseek-v2"):
        base = Setup.of(Deployment(find_model(model), hardware))
        try:
            runs = [simulated(setup, few(technique)) for setup in pair(technique, base)]
        except PolicyError:
            continue
        for run in runs:
            assert set(run.requests["status"]) == {"finished"}
        before, after = (run.requests["output_tokens"].tolist() for run in runs)
        return before, after
    return None


@pytest.mark.parametrize("name", EXACT)
def test_no_lossless_or_system_technique_changes_a_token_count(name: str) -> None:
    outputs = changed_outputs(TECHNIQUES[name]())
    assert outputs is not None, "it makes sense for some model"
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("technique", SERVING, ids=by_name)
def test_serving_techniques_change_no_token_count(technique: Technique) -> None:
    assert technique.kind == "system"
    assert technique.lossless
    outputs = changed_outputs(technique)
    assert outputs is not None
    assert outputs[0] == outputs[1]
