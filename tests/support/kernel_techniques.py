"""Deployments and decodes that tests of kernels share."""

from dataclasses import replace
from typing import Any

import numpy as np

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment
from servetwin.sim.step_times.roofline.efficiency import IDEAL
from servetwin.sim.step_times.roofline.operators import visible
from servetwin.sim.step_times.roofline.step_cost import StepCost
from servetwin.sim.techniques.kernels import (
    AsynchronousSoftmax,
    FlashAttention,
    FlashDecoding,
    KernelFusion,
)
from servetwin.sim.techniques.technique import Technique

A100: Hardware = find_hardware("a100-80gb")
GQA: ModelShape = find_model("llama-3-8b")
"""32 query heads, 8 KV heads, 32 layers, 131,072 bytes of keys and values per token."""
MHA: ModelShape = find_model("llama-2-7b")
BYTES_PER_S = 2.039e12
KV_BYTES = 131_072
LAUNCH_S = 4e-6
TECHNIQUES: list[Technique] = [
    FlashAttention(),
    FlashDecoding(),
    AsynchronousSoftmax(),
    KernelFusion(),
]


def ideal(model: ModelShape = GQA, **kernels: Any) -> Deployment:
    """On one A100, as its data sheet says."""
    return Deployment(model, A100, IDEAL, kernels=replace(IDEAL_KERNELS, **kernels))


def attention_s(deployment: Deployment, sequences: int, context_tokens: int) -> float:
    """Decode attention of equal contexts."""
    cost = StepCost(deployment).attention
    total = 0.0
    for place, mixer in enumerate([group.mixer for group in deployment.model.layers]):
        tokens = sequences * visible(mixer, np.array([context_tokens]))
        (split,) = cost.splits(tokens, sequences).tolist()
        token_s, apart_s = cost.decode_line_s(place, sequences, split)
        total += token_s * int(tokens[0]) + apart_s
    return total
