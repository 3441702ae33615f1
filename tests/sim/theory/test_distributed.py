"""Pipelines and disaggregation, against their schedules and the figures of the papers."""

from itertools import product
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.markov import FEW
from tests.support.theory.serving import (
    goodput_per_device_per_s,
    kv_transfer_s,
    pipeline_bubble,
    pipeline_first_token_s,
    pipeline_makespan_s,
    pipeline_token_interval_s,
    pipeline_utilisation,
    pipelined_prefill_ttft_s,
    prefill_ttft_s,
    tensor_parallel_prefill_ttft_s,
)


@given(FEW, FEW)
def test_pipeline_pass_is_its_schedule(stages: int, micro_batches: int) -> None:
    done = np.zeros((stages + 1, micro_batches + 1))
    for stage, micro in product(range(1, stages + 1), range(1, micro_batches + 1)):
        done[stage, micro] = max(done[stage - 1, micro], done[stage, micro - 1]) + 0.5
    makespan = pipeline_makespan_s(stages, micro_batches, 0.5)
    assert makespan == pytest.approx(done[-1, -1])
    idle = 1 - micro_batches * 0.5 / makespan
    assert pipeline_bubble(stages, micro_batches) == pytest.approx(idle)


@given(FEW, FEW)
def test_pipelined_decoding_is_its_schedule(stages: int, micro_batches: int) -> None:
    """Micro-batches take turns; a token starts when the one before it has left the last stage."""
    tokens, free = 30, np.zeros(stages)
    ends = np.zeros((tokens, micro_batches))
    for token, micro in product(range(tokens), range(micro_batches)):
        now = ends[token - 1, micro] if token else 0.0
        for stage in range(stages):
            free[stage] = now = max(now, float(free[stage])) + 0.5
        ends[token, micro] = now
    interval = pipeline_token_interval_s(stages, micro_batches, 0.5)
    assert np.diff(ends[10:], axis=0) == pytest.approx(interval)
    busy = pipeline_utilisation(stages, micro_batches)
    assert busy == pytest.approx(micro_batches * 0.5 / interval)
    assert pipeline_first_token_s(stages, 0.5) == pytest.approx(ends[0, 0])


def test_pipeline_numbers() -> None:
    assert pipeline_bubble(4, 8) == pytest.approx(0.2727, abs=5e-5)
    assert pipeline_first_token_s(4, 0.5, hop_s=0.1) == pytest.approx(2.3)


@pytest.mark.parametrize(
    ("ttft", "expected"),
    [
        (prefill_ttft_s(5, 0.1), 0.15),
        (pipelined_prefill_ttft_s(5, 0.1), 0.108333),
        (tensor_parallel_prefill_ttft_s(5, 0.1, 1.6), 0.0767045),
    ],
    ids=["one device", "two stages", "two-way tensor parallel"],
)
def test_distserve_first_tokens(ttft: float, expected: float) -> None:
    assert ttft == pytest.approx(expected, rel=5e-6)


@given(st.floats(0.01, 9), st.floats(1, 2))
def test_distserve_forms_are_those_of_the_paper(rate: float, speedup: float) -> None:
    d, k = 0.1, speedup
    two_stages = d + rate * d**2 / (4 * (2 - rate * d))
    two_way = d / k + rate * d**2 / (2 * k * (k - rate * d))
    assert pipelined_prefill_ttft_s(rate, d) == pytest.approx(two_stages)
    assert tensor_parallel_prefill_ttft_s(rate, d, k) == pytest.approx(two_way)


def test_pipelined_prefill_is_that_of_simulated_stages() -> None:
    """Three stages by Lindley's recursion; 20 runs within Student's 99.9 % interval."""
    rate, prefill, means = 5.0, 0.3, []
    for seed in range(20):
        arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, 5000))
        done = arrivals
        for _ in range(3):
            queue = np.arange(len(done)) * prefill / 3
            done = np.maximum.accumulate(done - queue) + queue + prefill / 3
        means.append(float((done - arrivals).mean()) - prefill)
    half = 3.883 * np.std(means, ddof=1) / sqrt(20)
    wait = pipelined_prefill_ttft_s(rate, prefill, 3) - prefill
    assert half < 0.1 * wait
    assert abs(np.mean(means) - wait) < half


def test_disaggregation_numbers() -> None:
    transfer = kv_transfer_s(512, 2_359_296, 2**30)
    assert transfer == pytest.approx(1.125, rel=1e-12)
    assert 10 * transfer == pytest.approx(11.25, rel=1e-12)
    assert kv_transfer_s(512, 2_359_296, 2**30, latency_s=0.5) == pytest.approx(1.625)
    goodput = goodput_per_device_per_s(2, 5.6, 1, 10.0)
    assert goodput == pytest.approx(3.33, abs=5e-3)
    assert goodput_per_device_per_s(1, 5.6, 1, 10.0) == pytest.approx(2.8)
