"""PagedAttention: KV memory in blocks, mapped when they are needed."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from policies.config import Reservation
from sim.shapes.part import Count
from sim.techniques.experiment import Experiment
from sim.techniques.kv_requirements import require_whole_contexts
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class PagedAttention(Technique):
    """Blocks of ``block_tokens``; off, one region per request, sized by ``reservation``.

    ``attention_slowdown``: how much longer decode attention takes when it reads by a table (0.20
    to 0.26 in the paper, section 7.1).
    """

    name = "paged-attention"
    family = "serving"
    kind = "system"
    lossless = True
    formula = "ceil(l / block) blocks instead of a region of the longest length"
    source = "vLLM (Kwon 2023), section 4"
    experiment = Experiment(load=0.3)

    block_tokens: Count = 16
    reservation: Reservation = "max"
    attention_slowdown: Annotated[float, Field(ge=0)] = 0.0

    def apply(self, setup: Setup) -> Setup:
        """In blocks; refused where not every token stays."""
        require_whole_contexts(self, setup)
        paged = setup.with_policies(kv="paged", block_tokens=self.block_tokens)
        return _slowed(paged, 1 + self.attention_slowdown)

    def off(self, setup: Setup) -> Setup:
        """In regions that are reserved whole; refused as ``apply`` is."""
        require_whole_contexts(self, setup)
        regions = setup.with_policies(kv="contiguous", reservation=self.reservation)
        return _slowed(regions, 1.0)


def _slowed(setup: Setup, factor: float) -> Setup:
    kernels = replace(setup.deployment.kernels, attention_slowdown=factor)
    return setup.with_deployment(kernels=kernels)
