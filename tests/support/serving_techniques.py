"""Setups, runs and gains that tests of serving techniques share."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.experiments.scenario import replicate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.sim.techniques.serving import (
    ChunkedPrefill,
    ContinuousBatching,
    CopyOnWrite,
    DynamicInsertion,
    PagedAttention,
    PrefillDecodeSplit,
    PrefixCache,
)
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.published import frameworks

SERVING: list[Technique] = [
    ContinuousBatching(),
    DynamicInsertion(),
    PagedAttention(),
    ChunkedPrefill(),
    PrefixCache(),
    CopyOnWrite(),
    PrefillDecodeSplit(),
]
ONE_SECOND = LinearStepTime.of({"constant": 1.0})
LLAMA, A100 = find_model("llama-2-7b"), find_hardware("a100-80gb")
REAL = Setup.of(Deployment(LLAMA, A100))


def simulated(setup: Setup, requests: Sequence[Request], seed: int = 0) -> Run:
    trace = Trace(tuple(requests), "test")
    return replicate(trace, setup.scenario(), np.random.SeedSequence(seed))


def pair(technique: Technique, base: Setup = REAL) -> tuple[Setup, Setup]:
    """(without, with)."""
    without = technique.off(base)
    return without, technique.apply(without)


def by_name(technique: Technique) -> str:
    return technique.name


def equal_kernels(setup: Setup) -> Setup:
    """As it is."""
    return setup


gain_over_static = cache(frameworks.gain_over_static)
"""As the table of the notes has it, computed once for all tests."""
