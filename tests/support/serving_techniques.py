"""Setups, runs and gains that tests of serving techniques share."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from policies.presets import find_preset
from sim.experiments.scenario import replicate
from sim.records.run import Run
from sim.shapes.catalogue import find_hardware, find_model
from sim.step_times.roofline.deployment import Deployment
from sim.step_times.step_time import LinearStepTime
from sim.techniques.serving import (
    ChunkedPrefill,
    ContinuousBatching,
    CopyOnWrite,
    DynamicInsertion,
    PagedAttention,
    PrefillDecodeSplit,
    PrefixCache,
)
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.generators.arrivals import PoissonArrivals
from workloads.generators.generate import WorkloadSpec, generate
from workloads.generators.lengths import IndependentLengths, LognormalTokens
from workloads.request import Request
from workloads.trace import Trace

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


SHAREGPT = IndependentLengths(
    LognormalTokens.from_mean(161, 1.0, max_tokens=1024),
    LognormalTokens.from_mean(338, 0.877, max_tokens=1023),
)
"""Means of Kwon et al. (2023), section 6; log-normal."""
SWAP_SPACE_BYTES = 4 * 2**30
"""vLLM's default; it swaps where a request has several answers, and else recomputes."""


def equal_kernels(setup: Setup) -> Setup:
    """As it is."""
    return setup


def throughput(setup: Setup, requests: Sequence[Request]) -> float:
    """Output tokens per second where all come at once."""
    run = simulated(setup, [replace(r, arrival_s=0.0) for r in requests])
    assert set(run.requests["status"]) == {"finished"}
    return float(run.summary()["output_throughput_tokens_per_s"])


def vllm(base: Setup, answers: int) -> Setup:
    """As in 2023: its preset."""
    imitated = base.with_policies(**find_preset("vllm-v0").policies)
    if answers == 1:
        return imitated
    swap_tokens = int(SWAP_SPACE_BYTES / base.deployment.kv_bytes_per_token())
    return imitated.with_policies(preemption="swap", host_kv_tokens=swap_tokens)


@cache
def gain_over_static(
    model: str, hardware: str, answers: int, plain: Callable[[Setup], Setup]
) -> float:
    """Throughput of a paged server over padded batches in regions of the longest length."""
    base = Setup.of(Deployment(find_model(model), find_hardware(hardware)))
    base = base.with_policies(max_model_len=2048)
    static = base.with_policies(**find_preset("hf-transformers").policies)
    drawn = list(generate(WorkloadSpec(400, PoissonArrivals(1.0), SHAREGPT), 1))
    copies = [replace(r, request_id=f"{r.request_id}/{k}") for r in drawn for k in range(answers)]
    samples = [replace(r, samples=answers) for r in drawn]
    return throughput(vllm(base, answers), samples) / throughput(plain(static), copies)


PAIRS = [("llama-2-7b", "a10g"), ("llama-2-13b", "a100-40gb")]
