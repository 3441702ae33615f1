"""Scenarios as the dashboard's controls can show them, for hypothesis."""

from typing import Any

from hypothesis import strategies as st

from servetwin.app.scenario.files.scenario_file import (
    GENERATED,
    SAMPLE,
    Limits,
    ScenarioFile,
    Workload,
)
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.policies.presets import PRESETS

_CV = st.floats(0.1, 5).map(lambda value: round(value, 3))
_LENGTH = st.integers(1, 131_072)
_MS = st.none() | st.floats(0.1, 3_600_000).map(lambda value: round(value, 1))
_PERCENTILE = st.floats(1, 100).map(lambda value: round(value, 2))
_COUNT = st.integers(1, 65_536)


def _maybe(**kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=kinds)


def _workloads() -> st.SearchStrategy[Workload]:
    rates = st.floats(0.5, 200).map(lambda value: round(value, 2))
    laws = st.fixed_dictionaries(
        {
            "requests": st.none() | st.integers(10, 200_000),
            "prefix_share": st.floats(0, 0.95).map(lambda value: round(value, 3)),
            "conversations": st.booleans(),
            "arrivals": st.sampled_from(["constant", "poisson", "gamma", "weibull", "mmpp2"]),
            "cv": _CV, "prompt_cv": _CV, "output_cv": _CV,
            "prompt_tokens": _LENGTH, "output_tokens": _LENGTH, "shared_prefix_tokens": _LENGTH,
        }
    )  # fmt: skip
    traces = st.builds(
        lambda source, rate, rest: Workload(source=source, rate_per_s=rate, **rest),
        st.sampled_from([SAMPLE, "own.csv"]), st.none() | rates, laws,
    )  # fmt: skip
    generated = st.builds(
        lambda rate, rest: Workload(source=GENERATED, rate_per_s=rate, **rest), rates, laws
    )
    return generated | traces


def _deployments() -> st.SearchStrategy[Deployment]:
    named = st.builds(
        Deployment,
        model=st.sampled_from(["llama-2-7b", "mixtral-8x7b", "Qwen/Qwen3-8B", "gpt-oss-120b"]),
        gpu=st.sampled_from(["a100-80gb", "h100"]),
        layout=st.none() | st.sampled_from(["tp=2", "tp=8,ep=8"]),
        server=st.none() | st.sampled_from(["vllm@0.19", "sglang"]),
        link=st.none() | st.just("dgx-h100"),
        times=st.none() | st.sampled_from(["sheet", "kernels"]),
        techniques=st.lists(
            st.sampled_from(["weight-int4", "tensor-parallel:ways=2"]), unique=True
        ).map(tuple),
        without=st.lists(
            st.sampled_from(["kv-cache", "continuous-batching:static_batch=2"]), unique=True
        ).map(tuple),
        efficiency=st.none() | st.just("compute=0.7,memory=0.85"),
    )
    return named | st.just(Deployment(profile=("base-cpu",)))


def scenarios() -> st.SearchStrategy[ScenarioFile]:
    """Any that has a place in the controls; not every one can be simulated."""
    policies = _maybe(
        batching=st.sampled_from(["static", "continuous", "chunked"]),
        kv=st.sampled_from(["paged", "contiguous"]),
        prefix_cache=st.booleans(),
        max_seqs=_COUNT, token_budget=_COUNT, kv_tokens=_COUNT,
        queue_order=st.sampled_from(["fcfs", "sjf"]),
        queue_limit=st.none() | st.integers(0, 100),
        watermark=st.sampled_from([0.0, 0.01, 0.125]),
    )  # fmt: skip
    cluster = _maybe(
        replicas=st.integers(1, 64),
        router=st.sampled_from(["round-robin", "least-tokens"]),
        closed_loop=st.booleans(),
        staleness_s=st.sampled_from([0.0, 0.25]),
    )
    return st.builds(
        ScenarioFile,
        workload=_workloads(),
        deployment=_deployments(),
        preset=st.none() | st.sampled_from(sorted(PRESETS)),
        policies=policies,
        cluster=cluster,
        slo=st.builds(Limits, ttft_ms=_MS, tpot_ms=_MS, e2e_ms=_MS, percentile=_PERCENTILE),
        seed=st.integers(0, 2**32 - 1),
    )
