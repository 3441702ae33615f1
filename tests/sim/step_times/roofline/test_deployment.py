"""Deployments that cannot be are refused with the reason."""

from dataclasses import replace

import pytest

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.parallel import Parallel
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.errors import PolicyError
from tests.support.rooflines import REAL


@pytest.mark.parametrize(
    ("model", "hardware", "message"),
    [
        ("llama-2-70b", "a100-80gb", "138.0 GB of bf16 weights do not fit the 79.5 GB"),
        ("llama-2-70b", "a100-80gb", "58.5 GB too much"),
        ("llama-2-13b", "rtx-4060", "18.5 GB too much"),
    ],
)
def test_weights_that_do_not_fit_say_by_how_much(model: str, hardware: str, message: str) -> None:
    deployment = Deployment(find_model(model), find_hardware(hardware))
    with pytest.raises(PolicyError, match=message):
        Setup.of(deployment).scenario()


@pytest.mark.parametrize(
    ("parallel", "message"),
    [
        (Parallel(tensor=3), "3 ways do not divide the 32 heads"),
        (Parallel(pipeline=33), "33 stages for 32 layers"),
        (Parallel(expert=2), "no experts"),
        (Parallel(tensor=0), "at least 1"),
    ],
)
def test_splits_that_cannot_be_are_refused(parallel: Parallel, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        replace(REAL, parallel=parallel)
