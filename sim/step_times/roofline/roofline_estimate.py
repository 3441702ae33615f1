"""A step as one point of the roofline: all its FLOPs against all its bytes, one max() over both.

The textbook's form, for comparison with published figures. The simulator adds up its operators
instead: in a mixed batch attention and products sit on opposite sides of the ridge, and one max()
lets the compute of one hide behind the traffic of the other. So this is never the longer of the
two. Messages, launches, pipelines and offloading are left out.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

import servetwin.sim.step_times.roofline.operators as counts
from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.model import LayerGroup
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.operators import Operator


@dataclass(frozen=True, slots=True)
class RooflineEstimate:
    """The operators of one step, on each of the devices that share it, taken as a whole.

    ``linear`` ones (products with weights) run in the format of their phase, ``attention`` in bf16.
    """

    deployment: Deployment
    has_prefill: bool
    linear: tuple[Operator, ...]
    attention: tuple[Operator, ...]

    @classmethod
    def of(cls, deployment: Deployment, shape: BatchShape) -> "RooflineEstimate":
        """Return the step of a batch of this shape, with its contexts where masks matter."""
        drafted = sum(rows for _, rows in shape.prefill_chunks[: shape.drafted_chunks])
        logit_rows = shape.sequences - shape.drafted_chunks + drafted
        has_prefill = len(shape.prefill_chunks) > shape.drafted_chunks
        linear = counts.linear_operators(deployment, shape.rows, has_prefill)
        head = counts.head_operator(deployment, logit_rows, has_prefill)
        return cls(deployment, has_prefill, (*linear, head), _attention(deployment, shape))

    @property
    def operators(self) -> tuple[Operator, ...]:
        """All of them."""
        return (*self.linear, *self.attention)

    @property
    def flops(self) -> float:
        """FLOPs of all."""
        return sum(operator.flops for operator in self.operators)

    @property
    def moved_bytes(self) -> float:
        """Memory traffic of all."""
        return sum(operator.moved_bytes for operator in self.operators)

    @property
    def compute_s(self) -> float:
        """Seconds of computing at the peaks."""
        deployment = self.deployment
        form = deployment.prefill if self.has_prefill else deployment.decode
        linear = sum(operator.flops for operator in self.linear)
        attention = sum(operator.flops for operator in self.attention)
        peak = deployment.hardware.peak(form.compute) * form.compute_share
        return linear / peak + attention / deployment.hardware.peak("bf16")

    @property
    def memory_s(self) -> float:
        """Seconds of memory traffic at the data sheet's bandwidth."""
        return self.moved_bytes / self.deployment.hardware.memory_bytes_per_s

    @property
    def seconds(self) -> float:
        """The step: its overhead, and the longer of both times, each at its achieved share."""
        efficiency = self.deployment.efficiency
        return efficiency.overhead_s + efficiency.seconds(self.compute_s, self.memory_s)

    @property
    def bound(self) -> Literal["compute", "memory"]:
        """Which of the two is the longer, at the peaks."""
        return "compute" if self.compute_s > self.memory_s else "memory"


def _attention(deployment: Deployment, shape: BatchShape) -> tuple[Operator, ...]:
    groups = deployment.model.layers
    chunks = (
        counts.prefill_attention(deployment, g, *c) for g in groups for c in shape.prefill_chunks
    )
    if not shape.decode_sequences:
        return tuple(chunks)
    decodes = (operator for group in groups for operator in _decodes(deployment, group, shape))
    return (*decodes, *chunks)


def _decodes(deployment: Deployment, group: LayerGroup, shape: BatchShape) -> list[Operator]:
    contexts = np.array(shape.decode_contexts or [shape.decode_context_tokens])
    seen = float(counts.visible(group.mixer, contexts).sum())
    return [
        counts.decode_attention(deployment, group.mixer, seen, group.count),
        counts.decode_state(deployment, group, shape.decode_sequences),
    ]
