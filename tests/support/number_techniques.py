"""Deployments, steps and the list of techniques that tests of number formats share."""

from dataclasses import replace

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment
from servetwin.sim.step_times.roofline.efficiency import IDEAL
from servetwin.sim.step_times.roofline.formats import FORMATS, Format
from servetwin.sim.step_times.roofline.step_cost import StepCost
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.techniques.compression import (
    Distillation,
    SemiStructuredSparsity,
    StructuredPruning,
    UnstructuredPruning,
    WeightSharing,
)
from servetwin.sim.techniques.quantisation import (
    AWQ,
    FP8,
    GPTQ,
    BlockFormat,
    KVQuantisation,
    LLMInt8,
    PhaseFormats,
    SmoothQuant,
    WeightFormat,
    WeightInt4,
    WeightInt8,
)
from servetwin.sim.techniques.technique import Technique

A100, H100 = find_hardware("a100-80gb"), find_hardware("h100")
LLAMA, GPT3 = find_model("llama-2-7b"), find_model("gpt-3-175b")
LLAMA_ON_A100 = Deployment(LLAMA, A100, IDEAL, kernels=IDEAL_KERNELS)
QUANTISATIONS: tuple[WeightFormat, ...] = (
    WeightInt8(), WeightInt4(), AWQ(), LLMInt8(), SmoothQuant(), FP8(), GPTQ(), BlockFormat(),
    BlockFormat(format="iq1_s"), WeightInt4(rounding="qat"), SmoothQuant(scales="dynamic"),
    FP8(format="e5m2", scales="dynamic"),
)  # fmt: skip
TECHNIQUES: tuple[Technique, ...] = (
    *QUANTISATIONS,
    *(KVQuantisation(format=name) for name in ("fp8", "bf8", "int8", "int4", "q8_0", "q4_0")),
    PhaseFormats(),
    StructuredPruning(),
    UnstructuredPruning(),
    SemiStructuredSparsity(),
    Distillation(),
    WeightSharing(),
)


def name_of(technique: Technique) -> str:
    return technique.name


def ideal(name: str, weight_bytes: float | None = None) -> Format:
    """A format without what its kernels lose, and with weights of exactly so many bytes."""
    form = FORMATS[name]
    size = form.weight_bytes if weight_bytes is None else weight_bytes
    return replace(form, weight_bytes=size, compute_share=1.0, memory_share=1.0)


def seconds(deployment: Deployment, shape: BatchShape) -> float:
    return float(roofline_step_time(deployment).seconds(shape)[0])


def prompt(tokens: int) -> BatchShape:
    return BatchShape(0, 0, 0, ((0, tokens),))


def decodes(count: int, context: int) -> BatchShape:
    return BatchShape(count, count * context, count)


def products(deployment: Deployment, rows: int) -> float:
    """Seconds of the layers' products alone: a step's, but for its overhead and KV write."""
    efficiency = deployment.efficiency
    written = rows * deployment.kv_bytes_per_token() / deployment.hardware.memory_bytes_per_s
    step_s = StepCost(replace(deployment, kernels=IDEAL_KERNELS)).rows_s(rows, 0, True)
    return step_s - efficiency.overhead_s - efficiency.seconds(0.0, written)
