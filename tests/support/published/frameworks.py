"""vLLM's launch post (items 1.3.7): its throughput over that of Transformers, in plain batches."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from servetwin.policies.presets import find_preset
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.experiments.scenario import replicate
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.techniques.setup import Setup, with_eager_kernels
from servetwin.workloads.generators.arrivals import PoissonArrivals
from servetwin.workloads.generators.generate import WorkloadSpec, generate
from servetwin.workloads.generators.lengths import IndependentLengths, LognormalTokens
from servetwin.workloads.trace import Trace
from tests.support.published.claim import Claim

_SHAREGPT = IndependentLengths(
    LognormalTokens.from_mean(161, 1.0, max_tokens=1024),
    LognormalTokens.from_mean(338, 0.877, max_tokens=1023),
)
"""Means of Kwon et al. (2023), section 6."""
_REQUESTS = 400
_LONGEST_TOKENS = 2048
_SWAP_SPACE_BYTES = 4 * 2**30
_OUTSIDE = (("llama-2-7b", 1), ("llama-2-13b", 3))
"""Model and answers whose figure here is outside of what the post has."""
SERVERS = (("llama-2-7b", "a10g"), ("llama-2-13b", "a100-40gb"))
"""Model and device of the post."""


def over_transformers() -> Iterator[Claim]:
    """Yield vLLM's throughput over that of padded batches with eager kernels, all at once."""
    for model, hardware in SERVERS:
        for answers, printed in ((1, "14 to 24"), (3, "8.5 to 15")):
            times = gain_over_static(model, hardware, answers, with_eager_kernels)
            what = f"{model} on {hardware}, answers {answers}"
            why = _BATCHES if (model, answers) in _OUTSIDE else ""
            yield Claim(f"{what}: times as much", printed, times, why)


def gain_over_static(
    model: str, hardware: str, answers: int, kernels: Callable[[Setup], Setup]
) -> float:
    """Return vLLM's throughput over that of padded batches whose server has other ``kernels``.

    All requests come at once; each wants so many ``answers``.
    """
    base = Setup.of(Deployment(find_model(model), find_hardware(hardware)))
    base = base.with_policies(max_model_len=_LONGEST_TOKENS)
    plain = base.with_policies(**find_preset("hf-transformers").policies)
    drawn = generate(WorkloadSpec(_REQUESTS, PoissonArrivals(1.0), _SHAREGPT), 1)
    requests = [replace(request, arrival_s=0.0) for request in drawn]
    copies = [
        replace(request, request_id=f"{request.request_id}/{copy}")
        for request in requests
        for copy in range(answers)
    ]
    samples = [replace(request, samples=answers) for request in requests]
    slow = _throughput(kernels(plain), Trace(tuple(copies), "post"))
    return _throughput(_vllm(base, answers), Trace(tuple(samples), "post")) / slow


def _vllm(base: Setup, answers: int) -> Setup:
    """Return vLLM of 2023, which swaps where a request has several answers."""
    paged = base.with_policies(**find_preset("vllm-v0").policies)
    if answers == 1:
        return paged
    swap_tokens = int(_SWAP_SPACE_BYTES / base.deployment.kv_bytes_per_token())
    return paged.with_policies(preemption="swap", host_kv_tokens=swap_tokens)


def _throughput(setup: Setup, trace: Trace) -> float:
    run = replicate(trace, setup.scenario(), np.random.SeedSequence(0))
    assert (run.requests["status"] == "finished").all()
    return float(run.summary()["output_throughput_tokens_per_s"])


_BATCHES = "the post gives no batch sizes, and Python's time a layer is that of one other GPU"
