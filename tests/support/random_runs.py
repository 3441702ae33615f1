"""Random policies and workloads for hypothesis, and a run of them with every invariant checked."""

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import pytest
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.policies.config import (
    Admission,
    BudgetCount,
    ChunkKind,
    PolicyConfig,
    Preemption,
    PrefixIndex,
    PromptBlocks,
    QueueOrder,
    Recompute,
    Reservation,
    Rounding,
    Victim,
    Waste,
    unread_settings,
)
from servetwin.policies.registry import EVICTION_ORDERS, MEMORIES, SCHEDULERS
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import FloatArray, LinearStepTime, NoiseSample, StepNoise
from servetwin.workloads.request import Request
from tests.support.checked import CheckedScheduler, request

STEP_TIME = LinearStepTime.of(
    {
        "constant": 0.010,
        "decode_sequences": 0.001,
        "rows_from_0": 0.0003,
        "rows_from_16": 0.0005,
        "decode_context_tokens": 1e-5,
        "prefill_pairs": 1e-6,
        "swapped_tokens": 1e-4,
    }
)

every_scheduler = pytest.mark.parametrize("batching", SCHEDULERS)


@st.composite
def policies(draw: st.DrawFn, batching: str) -> PolicyConfig:
    """Any combination of policies, with small memories and budgets that reach every mechanism."""
    kv = draw(st.sampled_from(["paged", *MEMORIES]))
    prefix_cache = kv == "paged" and draw(st.booleans())
    may_shorten = not prefix_cache and batching != "unified"
    read: dict[str, Any] = {"batching": batching, "kv": kv}
    settings: dict[str, Any] = {
        "reservation": draw(one_of(Reservation)),
        "rounding_waste": draw(one_of(Waste)),
        "prefix_cache": prefix_cache,
        "prefix_index": draw(one_of(PrefixIndex)),
        "eviction": draw(st.sampled_from(list(EVICTION_ORDERS))),
        "kv_tokens": draw(st.sampled_from([72, 96, 160, 1000])),
        "block_tokens": draw(st.sampled_from([1, 4, 16])),
        "max_model_len": 70,
        "max_seqs": draw(st.sampled_from([1, 2, 5, 16])),
        "token_budget": draw(st.sampled_from([16, 20, 64])),
        "wait_limit_s": draw(st.sampled_from([0.0, 0.02, 0.5])),
        "queue_limit": draw(st.sampled_from([None, None, 0, 3])),
        "adapter_slots": (slots := draw(st.sampled_from([0, 0, 1, 2]))),
        "adapter_tokens": slots and draw(st.sampled_from([0, 7, 300])),
        "queue_order": "fcfs" if slots else draw(one_of(QueueOrder)),
        "admission": draw(one_of(Admission)),
        "prompt_blocks": draw(one_of(PromptBlocks)),
        "full_prompt_gate": draw(st.booleans()),
        "long_prefill_tokens": (long := draw(st.sampled_from([0, 0, 3, 9]))),
        "long_prefill_adaptive": long > 0 and draw(st.booleans()),
        "queued_tokens_limit": draw(st.sampled_from([None, None, None, 50])),
        "queue_samples": (queued := draw(st.booleans())),
        "decide_ahead": queued and batching == "unified" and draw(st.booleans()),
        "watermark": draw(st.sampled_from([0.0, 0.0, 0.02])),
        "watermark_rounding": draw(one_of(Rounding)),
        "watermark_alone": draw(st.booleans()),
        "budget_count": draw(one_of(BudgetCount)),
        "padding": draw(st.booleans()),
        "pad_newcomers": draw(st.booleans()),
        "decodes_between_prefills": draw(st.sampled_from([0, 0, 1, 3, 10])),
        "one_row_chunk": draw(one_of(ChunkKind)),
        "decode_needs_free_block": draw(st.booleans()),
        "admit_after_preemption": draw(st.booleans()),
        "shed_ttft_s": draw(st.sampled_from([None, None, 0.2])),
        "preemption": draw(one_of(Preemption)),
        "recompute": draw(one_of(Recompute)) if may_shorten else "all",
        "victim": draw(one_of(Victim)),
        "host_kv_tokens": draw(st.sampled_from([0, 40, 1000])),
        "host_cache_tokens": draw(st.sampled_from([0, 64, 1000])) if prefix_cache else 0,
        "far_cache_tokens": (far := draw(st.sampled_from([0, 96, 1000])) if prefix_cache else 0),
        "far_cache_slowdown": draw(st.sampled_from([0.3, 5.0])) if far else 8.0,
        "far_cache_latency_tokens": far and draw(st.sampled_from([0, 0, 9])),
    }
    for name in unread_settings(read):
        settings.pop(name, None)
    return PolicyConfig(**read, **settings)


def one_of(literal: object) -> st.SearchStrategy[Any]:
    return st.sampled_from(get_args(literal))


@st.composite
def workloads(draw: st.DrawFn) -> list[Request]:
    """Up to 25 requests, some at the same moment, some sharing prefixes of 4-token blocks."""
    requests: list[Request] = []
    now_s = 0.0
    for index in range(draw(st.integers(1, 25))):
        now_s += draw(st.sampled_from([0.0, 0.003, 0.01, 0.0501, 0.3, 2.0]))
        prompt = draw(st.integers(1, 40))
        blocks = -(-prompt // 4)
        family = draw(st.integers(0, 2))
        shared = draw(st.integers(0, blocks)) if family else 0
        own = [1000 * (index + 1) + j for j in range(blocks - shared)]
        ids = (*(100 * family + j for j in range(shared)), *own)
        asked = request(str(index), now_s, prompt, draw(st.integers(1, 30)), ids)
        asked = replace(asked, samples=draw(st.sampled_from([1, 1, 1, 2, 3])))
        tenant, priority = draw(st.sampled_from([(None, 0), ("a", 1), ("b", -1)]))
        hidden = draw(st.sampled_from([None, None, 0, 1, 4, 30]))
        adapter = draw(st.sampled_from([None, "x", "y", "z"]))
        asked = replace(asked, reasoning_tokens=hidden, model=adapter)
        longer = draw(st.sampled_from([None, None, 60]))  # told by its last token alone
        asked = replace(asked, estimated_output_tokens=longer)
        requests.append(replace(asked, tenant=tenant, priority=priority))
    return requests


class Opaque:
    """A step-time model of which the simulator knows only ``seconds``; steps differ by context."""

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        growth = np.arange(steps) * shape.decode_growing
        return 0.01 + 1e-5 * np.sqrt(shape.decode_context_tokens + growth) + 1e-4 * shape.rows


Clock = Literal["affine", "noisy", "sampled"]


def run_checked(
    config: PolicyConfig, requests: list[Request], macro: bool, clock: Clock = "noisy"
) -> Run:
    noise = StepNoise(NoiseSample(np.array([0.9, 1.0, 1.3])), np.random.default_rng(0))
    scheduler = CheckedScheduler(config)
    run = simulate(
        requests,
        scheduler,
        Opaque() if clock == "sampled" else STEP_TIME,
        noise=None if clock == "affine" else noise,
        macro=macro,
    )
    assert scheduler.load()[:2] == (0, 0), "something is left over"
    usage = scheduler.memory.usage([])
    assert usage.live_tokens == usage.reserved_tokens == usage.internal_waste_tokens == 0
    return run
