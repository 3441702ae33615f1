"""Setups, traces and the list of techniques that tests of decoding share."""

from dataclasses import replace
from typing import Any

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.step_times.acceptance import Acceptance
from servetwin.sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment
from servetwin.sim.step_times.roofline.efficiency import IDEAL
from servetwin.sim.techniques.decoding import (
    BlockwiseDecoding,
    DiffusionDecoding,
    DraftedDecoding,
    EarlyExitDecoding,
    ModelCascade,
)
from servetwin.sim.techniques.drafting import SelfSpeculation, SpeculativeDecoding, TreeSpeculation
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.trace import Trace
from tests.support.checked import request
from tests.support.formulas.speculation import roofline_speed_up

A100: Hardware = find_hardware("a100-80gb")
TARGET: ModelShape = find_model("llama-2-7b")
DRAFT: ModelShape = find_model("llama-68m")
BYTES_PER_S = 2.039e12
FAR_APART_S = 1000.0
DRAFTED: list[DraftedDecoding] = [
    SpeculativeDecoding(),
    TreeSpeculation(),
    SelfSpeculation(),
    BlockwiseDecoding(),
    DiffusionDecoding(),
]
TECHNIQUES: list[Technique] = [*DRAFTED, EarlyExitDecoding(), ModelCascade()]


def ideal(model: ModelShape = TARGET, hardware: Hardware = A100, **kernels: Any) -> Deployment:
    """On one device, as its data sheet says."""
    return Deployment(model, hardware, IDEAL, kernels=replace(IDEAL_KERNELS, **kernels))


def base(**changes: Any) -> Setup:
    """Llama-2-7B on an ideal A100."""
    return Setup.of(ideal(**changes))


def law_of(setup: Setup) -> Acceptance:
    assert setup.acceptance is not None
    return setup.acceptance


def gain(technique: DraftedDecoding, setup: Setup, sequences: int, context_tokens: int) -> float:
    """Tokens per second of decodes with it over those without, truncation apart."""
    with_it = technique.apply(setup)
    return roofline_speed_up(
        setup.deployment, with_it.deployment, law_of(with_it), sequences, context_tokens
    )


def apart(count: int, prompt: int = 500, output: int = 65) -> Trace:
    """Requests so far apart that none meets another."""
    requests = (request(str(i), FAR_APART_S * i, prompt, output) for i in range(count))
    return Trace(tuple(requests), "apart")
