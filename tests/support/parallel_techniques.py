"""Models, deployments and steps that tests of parallelism share."""

from math import inf
from typing import Any

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.hardware import Hardware, Link
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment
from servetwin.sim.step_times.roofline.efficiency import IDEAL
from servetwin.sim.step_times.roofline.parallel import Parallel
from servetwin.sim.step_times.roofline.step_cost import StepCost
from servetwin.sim.techniques.parallel import (
    ExpertParallel,
    Parallelism,
    PipelineParallel,
    SequenceParallel,
    TensorParallel,
)

A100: Hardware = find_hardware("a100-80gb")
MHA: ModelShape = find_model("llama-2-7b")
GQA: ModelShape = find_model("llama-3-8b")
MIXTURE: ModelShape = find_model("mixtral-8x7b")
FREE = Link(0.0, inf)
TECHNIQUES: list[tuple[Parallelism, ModelShape]] = [
    (TensorParallel(ways=4), GQA),
    (PipelineParallel(stages=4), GQA),
    (SequenceParallel(ways=4), GQA),
    (ExpertParallel(ways=4), MIXTURE),
]


def ideal(model: ModelShape = GQA, hardware: Hardware = A100, **parallel: Any) -> Deployment:
    """As the data sheet says, with messages that take no time unless a link is given."""
    shared = Parallel(**{"link": FREE, **parallel})
    return Deployment(model, hardware, IDEAL, kernels=IDEAL_KERNELS, parallel=shared)


def rows_s(deployment: Deployment, rows: int) -> float:
    """The part of a step of decodes that does not depend on contexts."""
    return StepCost(deployment).rows_s(rows, rows, False)
