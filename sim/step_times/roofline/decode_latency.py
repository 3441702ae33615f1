"""The textbooks' estimates of a step, for comparison with published figures.

``RooflineEstimate``: all FLOPs of a step against all its bytes, one max() over both. The simulator
adds up its operators instead: in a mixed batch attention and products sit on opposite sides of the
ridge, and one max() lets the compute of one hide behind the traffic of the other. So this is never
the longer of the two. Messages, launches, pipelines and offloading are left out.

``decode_latency``: latency is memory over bandwidth, throughput is batch over latency. The estimate
of Stanford's CS336 (lecture 10, inference): all that is in memory, embedding included, is read once
a step. ``roofline_s`` beside it is the ``RooflineEstimate``: it reads the head, but no table of
embeddings.
"""

from collections import defaultdict
from dataclasses import dataclass
from math import ceil

import numpy as np

import servetwin.sim.step_times.roofline.operators as counts
from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.catalogue.model import LayerGroup, ModelShape
from servetwin.sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment
from servetwin.sim.step_times.roofline.efficiency import IDEAL
from servetwin.sim.step_times.roofline.formats import BF16, Format
from servetwin.sim.step_times.roofline.operators import Operator
from servetwin.workloads.errors import PolicyError


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
        groups = deployment.parallel.groups if deployment.parallel.lockstep else 1
        linear = counts.linear_operators(deployment, shape.rows, has_prefill, groups)
        head = counts.head_operator(deployment, logit_rows, has_prefill)
        return cls(deployment, has_prefill, (*linear, head), _attention(deployment, shape))

    @property
    def operators(self) -> tuple[Operator, ...]:
        """All operators."""
        return (*self.linear, *self.attention)

    @property
    def moved_bytes(self) -> float:
        """Memory traffic of all."""
        return sum(operator.moved_bytes for operator in self.operators)

    @property
    def compute_s(self) -> float:
        """Seconds of computing at the peaks."""
        hardware = self.deployment.hardware
        flops: defaultdict[Format, float] = defaultdict(float)
        for operator in self.linear:
            flops[self.deployment.form(self.has_prefill, operator.part)] += operator.flops
        linear_s = sum(n / (hardware.peak(f.compute) * f.compute_share) for f, n in flops.items())
        attention = sum(operator.flops for operator in self.attention)
        return linear_s + attention / hardware.peak("bf16")

    @property
    def memory_s(self) -> float:
        """Seconds of memory traffic at the data sheet's bandwidth."""
        return self.moved_bytes / self.deployment.hardware.memory_bytes_per_s

    @property
    def seconds(self) -> float:
        """The step: its overhead, and the longer of both times, each at its achieved share."""
        efficiency = self.deployment.efficiency
        return efficiency.overhead_s + efficiency.seconds(self.compute_s, self.memory_s)


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
    tokens = float(counts.visible(group.mixer, contexts).sum())
    return [
        counts.decode_attention(deployment, group.mixer, tokens, group.count),
        counts.decode_state(deployment, group, shape.decode_sequences),
    ]


SECONDS_PER_DAY = 86_400


@dataclass(frozen=True, slots=True)
class DecodeLatency:
    """One row: a step of ``batch`` sequences, all at the same context."""

    batch: int
    kv_heads: int | None
    params: float
    memory_bytes: float
    read_bytes: float
    latency_s: float
    tokens_per_s: float
    fits: bool
    roofline_s: float


def decode_latency(deployment: Deployment, batch: int, context_tokens: int) -> DecodeLatency:
    """Return 2 P + B S KV bytes (at 2 bytes each) over the bandwidth; of experts, those touched."""
    model, hardware = deployment.model, deployment.hardware
    params, per_weight = model.params(), deployment.form(False).weight_bytes
    kv_bytes = batch * model.resident_kv_elements(context_tokens) * deployment.kv_element_bytes
    width = model.width
    touched = model.total(lambda g: g.mixer.params(width) + g.ffn.touched_params(width, batch))
    untouched = model.linear_params() - touched
    memory_bytes = per_weight * params + kv_bytes
    read_bytes = memory_bytes - per_weight * untouched
    latency_s = read_bytes / hardware.memory_bytes_per_s
    contexts = (context_tokens,) * batch
    shape = BatchShape(batch, sum(contexts), batch, decode_contexts=contexts)
    return DecodeLatency(
        batch, kv_heads(model), params, memory_bytes, read_bytes, latency_s, batch / latency_s,
        memory_bytes <= hardware.memory_bytes, RooflineEstimate.of(deployment, shape).seconds,
    )  # fmt: skip


def ideal_deployment(
    model: ModelShape, hardware: Hardware, form: Format = BF16, kv_element_bytes: float = 2.0
) -> Deployment:
    """Return ``model`` on one device that achieves its data sheet."""
    return Deployment(model, hardware, IDEAL, form, form, kv_element_bytes, kernels=IDEAL_KERNELS)


def most_tokens_per_s(deployment: Deployment, context_tokens: int) -> float:
    """Return the limit of throughput for large batches: bandwidth over the KV of one sequence."""
    kv_bytes = deployment.model.resident_kv_elements(context_tokens) * deployment.kv_element_bytes
    return deployment.hardware.memory_bytes_per_s / kv_bytes


def kv_heads(model: ModelShape) -> int | None:
    """Return the KV heads of the attention layers; None where there are none, or they differ."""
    counts = {mixer.kv_heads for mixer in model.attentions()}
    return counts.pop() if len(counts) == 1 else None


def with_kv_heads(model: ModelShape, count: int) -> ModelShape:
    """Return the model with ``count`` KV heads (GQA, Ainslie 2023); its projections shrink too.

    Raises ``PolicyError`` where a model has no KV heads, or ``count`` does not divide its heads.
    """
    if not model.attentions():
        raise PolicyError(f"{model.name} has no KV heads that could be {count}")
    for mixer in model.attentions():
        if count < 1 or mixer.heads % count:
            raise PolicyError(f"{mixer.heads} heads of {model.name} cannot share {count} KV heads")
    return model.with_attentions(lambda mixer: mixer.model_copy(update={"kv_heads": count}))


def devices_for(tokens_per_day: float, tokens_per_s: float) -> int:
    """Return the devices for a daily output, each making ``tokens_per_s`` without a pause."""
    return ceil(tokens_per_day / SECONDS_PER_DAY / tokens_per_s)
