"""Pipeline parallelism: every device has some of the layers, batches go through them in pieces."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sim.shapes.part import Count
from sim.techniques.parallelism import Parallelism
from sim.techniques.setup import Setup


class PipelineParallel(Parallelism):
    """``stages`` devices, ``micro_batches`` in flight (0: as many as stages)."""

    name = "pipeline-parallel"
    formula = "prompts (m + p - 1) t_stage, decodes max(p, m) t_stage; T d bytes a hop"
    source = "GPipe (Huang 2019)"

    stages: Count = 2
    micro_batches: Annotated[int, Field(ge=0)] = 0

    def apply(self, setup: Setup) -> Setup:
        """Split; refused where there are fewer layers than stages."""
        parallel = setup.deployment.parallel
        split = replace(parallel, pipeline=self.stages, micro_batches=self.micro_batches)
        return self._shared(setup, split)


def bubble_share(stages: int, micro_batches: int) -> float:
    """Share of a batch's time in which a stage is idle: (p - 1) / (m + p - 1)."""
    return (stages - 1) / (micro_batches + stages - 1)


def makespan_s(stages: int, micro_batches_s: Sequence[float]) -> float:
    """From the first micro-batch into the first stage to the last one out of the last.

    ``micro_batches_s`` is what each takes in any one of the equal stages: their sum, and the
    longest once more for every further stage. A stage waits for the longest (Sarathi 2023).
    """
    return sum(micro_batches_s) + (stages - 1) * max(micro_batches_s, default=0.0)
