"""Where a step's time goes: its operators, each at its place on the roofline, and the rest.

Operators of the same name are added up over all layers. They are those of one device and, where a
batch is cut into micro-batches or groups, of one piece; ``step_s`` is what they take of the step.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

import servetwin.sim.step_times.roofline.operators as counts
from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.hardware import Hardware, Precision
from servetwin.sim.catalogue.model import LayerGroup
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.operators import Operator
from servetwin.sim.step_times.roofline.step_cost import StepCost
from servetwin.sim.step_times.roofline.step_time import roofline_step_time

Bound = Literal["memory", "compute"]
ATTENTION: Precision = "bf16"
"""The precision of attention, whatever the format of the weights."""


@dataclass(frozen=True, slots=True)
class Placed:
    """An operator on the roofline of ``hardware``: its work, its time alone, its time of the step.

    ``flops_per_s`` is the peak of the format that it computes in.
    """

    operator: Operator
    seconds: float
    step_s: float
    flops_per_s: float
    hardware: Hardware

    @property
    def attained_flops_per_s(self) -> float:
        """The FLOPs per second that it attains."""
        return self.operator.flops / self.seconds

    @property
    def bound(self) -> Bound:
        """Which peak it meets first: left or right of the ridge (Williams 2009)."""
        ridge = self.flops_per_s / self.hardware.memory_bytes_per_s
        return "memory" if self.operator.intensity < ridge else "compute"


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A step of ``seconds`` and the operators in it."""

    seconds: float
    operators: tuple[Placed, ...]

    @property
    def rest_s(self) -> float:
        """Seconds of no operator: overhead, launches, messages, weights from the host."""
        return max(0.0, self.seconds - sum(placed.step_s for placed in self.operators))

    def share(self, bound: Bound) -> float:
        """Return the share of the step that its memory-bound, or compute-bound, operators take."""
        return sum(p.step_s for p in self.operators if p.bound == bound) / self.seconds


def decode_breakdown(deployment: Deployment, sequences: int, context_tokens: int) -> Breakdown:
    """Return a step of ``sequences`` decodes that attend to ``context_tokens`` each.

    Drafting and cascades are left out: this is a plain step of the model itself.
    """
    cost = StepCost(_alone(deployment))
    every = (context_tokens,) * sequences
    shape = BatchShape(sequences, sum(every), sequences, decode_contexts=every)
    alone = cost.deployment
    groups, part = alone.model.layers, sequences / alone.parallel.pieces(sequences)
    attention = _merged(_decodes(alone, g, part, context_tokens) for g in groups)
    states = _merged(counts.decode_state(alone, g, part) for g in groups)
    attention_s = cost.attention.decodes_s(sequences, context_tokens)
    states_s = cost.attention.state_s(sequences)
    return _breakdown(cost, shape, {attention: attention_s, states: states_s})


def prefill_breakdown(deployment: Deployment, prompt_tokens: int) -> Breakdown:
    """Return a step that computes one whole prompt, of the model itself."""
    cost = StepCost(_alone(deployment))
    shape = BatchShape(0, 0, 0, ((0, prompt_tokens),))
    alone = cost.deployment
    attention = _merged(
        counts.prefill_attention(alone, g, 0, prompt_tokens) for g in alone.model.layers
    )
    attention_s = cost.attention.chunk_s(0, prompt_tokens) * alone.parallel.path_share(1, True)
    return _breakdown(cost, shape, {attention: attention_s})


def _breakdown(cost: StepCost, shape: BatchShape, attended: dict[Operator, float]) -> Breakdown:
    """Place all operators; ``attended`` has those without weights, and their seconds."""
    deployment, has_prefill = cost.deployment, bool(shape.prefill_chunks)
    parallel = deployment.parallel
    path = parallel.path_share(shape.sequences, has_prefill) * parallel.pieces(shape.sequences)
    hardware = deployment.hardware
    placed = []
    for operator in _products(cost, shape, has_prefill):
        form = deployment.form(has_prefill, operator.part)
        seconds = cost.weighted_s(operator, has_prefill)
        peak = hardware.peak(form.compute) * max(1.0, form.compute_share)
        placed.append(Placed(operator, seconds, seconds * path, peak, hardware))
    for operator, step_s in attended.items():
        placed.append(Placed(operator, step_s / path, step_s, hardware.peak(ATTENTION), hardware))
    seconds = float(roofline_step_time(deployment).seconds(shape)[0])
    return Breakdown(seconds, tuple(one for one in placed if one.seconds))


def _products(cost: StepCost, shape: BatchShape, has_prefill: bool) -> list[Operator]:
    """Return products with weights, and the traffic beside them, of one piece of the batch."""
    deployment, sequences = cost.deployment, shape.sequences
    parts, groups = deployment.parallel.pieces(sequences), deployment.parallel.spread(sequences)
    rows, logit_rows = shape.rows / parts, sequences / parts
    operators = counts.linear_operators(deployment, rows, has_prefill, groups)
    names = dict.fromkeys(operator.name for operator in operators)
    merged = [_merged(o for o in operators if o.name == name) for name in names]
    return [*merged, counts.head_operator(deployment, logit_rows, has_prefill)]


def _decodes(
    deployment: Deployment, group: LayerGroup, sequences: float, context_tokens: int
) -> Operator:
    """Return decode attention in a group of layers; with early exit, of the remaining tokens."""
    tokens = sequences * float(counts.visible(group.mixer, np.array(context_tokens)))
    whole = counts.decode_attention(deployment, group.mixer, tokens, group.count)
    depth = deployment.early_exit.mean_depth() if deployment.early_exit else 1.0
    return replace(whole, flops=whole.flops * depth, moved_bytes=whole.moved_bytes * depth)


def _merged(operators: Iterable[Operator]) -> Operator:
    """Return all operators as one."""
    listed = list(operators)
    flops, moved = (sum(getattr(o, name) for o in listed) for name in ("flops", "moved_bytes"))
    return replace(listed[0], flops=flops, moved_bytes=moved)


def _alone(deployment: Deployment) -> Deployment:
    return replace(deployment, drafting=None, cascade=None)
