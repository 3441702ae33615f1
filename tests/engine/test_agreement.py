"""Law 5: given the engine's own times, the simulator decides exactly what the engine decided."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.samples import forks_samples
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig, Reservation
from servetwin.policies.registry import SCHEDULERS
from servetwin.sim.core.simulate import simulate
from servetwin.sim.experiments.decision_check import check_decisions
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.request import Request
from tests.support.core_story import policy
from tests.support.timed_requests import TimedRequest, run_requests

pytest.importorskip("torch")

from servetwin.engine.core.runner import Runner
from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.models.model_config import model_preset
from tests.support.memory_step_log import MemoryStepLog
from tests.support.speculative_engine import NOISY, SAYS_MUCH, runner_of
from tests.support.tiny_core import tiny_core

SMALL = PolicyConfig(
    kv_tokens=192, block_tokens=8, max_model_len=96, max_seqs=8, token_budget=24, wait_limit_s=0.01
)
MEMORIES: list[tuple[str, Reservation, bool]] = [
    ("contiguous", "max", False),
    ("contiguous", "pow2", False),
    ("contiguous", "exact", False),
    ("paged", "max", False),
    ("paged", "max", True),
]
POLICIES = [
    replace(
        SMALL,
        batching=batching,
        kv=kv,
        reservation=reservation,
        prefix_cache=prefix,
    )
    for batching in SCHEDULERS
    for kv, reservation, prefix in MEMORIES
]
CHAIN_OF_TWO = Drafts("model", (1, 1), seed=NOISY)
TREE = Drafts("model", (2, 1), seed=NOISY)
ONE_LAYER = replace(SAYS_MUCH, layers=1)
"""Decisions ask a model for nothing but tokens that now and then are those of its drafts."""
OTHER_RULES = {
    "chunks": PolicyConfig(
        "chunked", prefix_cache=True, prompt_blocks="chunk", admit_after_preemption=True
    ),
    "version-0": PolicyConfig(
        "prefill-first",
        budget_count="padded",
        watermark=0.05,
        watermark_rounding="down",
        watermark_alone=False,
        decode_needs_free_block=True,
    ),
    "packed": PolicyConfig("static", padding=False),
    "newcomers": PolicyConfig("insertion", kv="contiguous", pad_newcomers=True),
    "states": PolicyConfig("continuous", kv="grouped", kv_groups="full,2xstate"),
    "states, prefix cache": PolicyConfig(
        "chunked", kv="grouped", kv_groups="full,state", prefix_cache=True
    ),
    "ahead": PolicyConfig("unified", prefix_cache=True, queue_samples=True, decide_ahead=True),
}
"""Rules of particular servers, with the sizes of ``SMALL``."""
SIZES = ("kv_tokens", "block_tokens", "max_model_len", "max_seqs", "token_budget", "wait_limit_s")
POLICIES += [
    replace(rules, **{name: getattr(SMALL, name) for name in SIZES})
    for rules in OTHER_RULES.values()
]
DRAFTED = {
    "chain": (CHAIN_OF_TWO, False),
    "chain, prefix cache": (CHAIN_OF_TWO, True),
    "tree": (TREE, False),
    "tree, prefix cache": (TREE, True),
    "unified chain": (CHAIN_OF_TWO, False),
    "unified tree, prefix cache": (TREE, True),
    "unified chain ahead, prefix cache": (CHAIN_OF_TWO, True),
}
for name, (drafts, cached) in DRAFTED.items():
    batching = "unified" if name.startswith("unified") else "continuous"
    base = replace(SMALL, batching=batching, prefix_cache=cached, queue_samples="ahead" in name)
    drafted = base.with_drafts(drafts.tree.drafts)
    POLICIES.append(replace(drafted, decide_ahead="ahead" in name))
IDS = [f"{c.name}-{c.reservation}" for c in POLICIES[: -len(OTHER_RULES) - len(DRAFTED)]] + [
    *OTHER_RULES,
    *DRAFTED,
]


def bursty_requests(seed: int, samples: int = 1) -> list[TimedRequest]:
    """Requests in bursts, a third of them opening with one of two shared prefixes, and a fourth
    wanting ``samples`` answers.
    """
    rng = np.random.default_rng(seed)
    prefixes = rng.integers(300, 500, (2, 40)).tolist()
    requests, at_s = [], 0.0
    for index in range(30):
        at_s += float(rng.choice([0.0, 0.001, 0.02], p=[0.6, 0.3, 0.1]))
        prompt = rng.integers(300, 500, int(rng.integers(4, 50))).tolist()
        if index % 3 == 0:
            prompt = prefixes[index % 2] + prompt[:10]
        output = int(rng.integers(1, 40))
        params = SamplingParams(output, ignore_eos=True, n=samples if index % 4 == 1 else 1)
        requests.append((at_s, f"r{index}", prompt, params))
    return requests


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("config", POLICIES, ids=IDS)
def test_recorded_times_replayed_give_the_identical_decisions(
    config: PolicyConfig, samples: int
) -> None:
    scheduler = build_scheduler(config)
    memory = scheduler.memory
    runner = runner_of(
        {0: Drafts(), 2: CHAIN_OF_TWO, 4: TREE}[config.draft_rows],
        ONE_LAYER,
        layout=memory.layout,
        kv_tokens=memory.capacity_tokens,
        block_tokens=memory.block_tokens,
    )
    log = MemoryStepLog()
    core = EngineCore(scheduler, runner, prefix_cache=config.prefix_cache, log=log)
    requests = bursty_requests(seed=POLICIES.index(config), samples=samples)
    events = run_requests(core, requests)
    assert len(events) == sum(params.max_tokens * params.n for _, _, _, params in requests)

    decision_check = check_decisions(log.arrivals, config, log.records)
    assert decision_check.identical, (
        decision_check.agreeing,
        decision_check.engine,
        decision_check.simulator,
    )
    assert decision_check.steps == len(log.records) > 50
    if samples > 1:
        assert any(seq.samples > 1 for seq in log.arrivals) == forks_samples(scheduler)
        return
    preempted = sum(len(record.preempted) for record in log.records)
    hits = sum(len(record.hits) for record in log.records)
    reserving = ("static", "insertion")
    on_demand = config.batching not in reserving and config.kv != "contiguous"
    assert (preempted > 0) == on_demand
    assert (hits > 0) == config.prefix_cache
    assert any(record.waiting for record in log.records), "memory or slots never ran short"
    accepted = {tokens for record in log.records for _, _, tokens in record.drafts}
    assert accepted == ({0, 1, 2} if config.draft_rows else set())


def test_deciding_ahead_costs_the_steps_that_are_foreseen() -> None:
    """Short answers, slots always full: an ended one holds its slot for a step more."""
    steps = []
    for ahead in (False, True):
        config = replace(SMALL, batching="unified", queue_samples=True, decide_ahead=ahead)
        core = tiny_core(config)
        core.log = log = MemoryStepLog()
        params = SamplingParams(6, ignore_eos=True)
        run_requests(core, [(0.0, f"r{row}", [300 + row] * 9, params) for row in range(60)])
        asked = [Request(f"r{row}", 0.0, 9, 6) for row in range(60)]
        one_second = LinearStepTime.of({"constant": 1.0})
        run = simulate(asked, build_scheduler(config), one_second, macro=False)
        assert run.extra["simulation"]["steps"] == len(log.records)
        steps.append(len(log.records))
    assert 1.1 < steps[1] / steps[0] < 1.25


def test_a_different_policy_does_not_reproduce_the_log() -> None:
    config = replace(SMALL, kv="paged")
    scheduler = build_scheduler(config)
    runner = Runner(model_preset("tiny"), layout="paged", kv_tokens=192, block_tokens=8)
    log = MemoryStepLog()
    core = EngineCore(scheduler, runner, log=log)
    run_requests(core, bursty_requests(seed=3))
    assert not check_decisions(
        log.arrivals, replace(config, token_budget=20), log.records
    ).identical


VARIED: list[dict[str, Any]] = [
    {},
    {"top_p": 0.8, "top_k": 40},
    {"repetition_penalty": 1.5, "logit_bias": ((300, 2.0),)},
    {"presence_penalty": 1.0, "frequency_penalty": 0.5},
    {"min_tokens": 9, "allowed_token_ids": tuple(range(300, 360)), "presence_penalty": 2.0},
    {"min_p": 0.02, "logprobs": 2},
]
"""How each of six requests wants its tokens."""
MODES = [
    policy(batching="static", kv="contiguous"),
    policy(batching="static", kv="paged", prefix_cache=True),
    policy(batching="continuous", kv="contiguous", token_budget=5),
    policy(batching="continuous", kv="paged", token_budget=32),
    policy(batching="continuous", kv="paged", kv_tokens=40, max_seqs=4, prefix_cache=True),
]


def test_every_mode_gives_the_same_tokens_with_the_real_runner() -> None:
    pytest.importorskip("torch")
    outputs = [_outputs_of(mode) for mode in MODES]
    assert all(output == outputs[0] for output in outputs)
    assert len({token for tokens in outputs[0].values() for token in tokens}) > 40


def _outputs_of(config: PolicyConfig) -> dict[str, list[int]]:
    core = tiny_core(config)
    shared = list(range(300, 309))
    requests: list[TimedRequest] = []
    for index in range(6):  # every other one is greedy
        params = SamplingParams(14, temperature=index % 2, seed=index, ignore_eos=True)
        params = replace(params, **VARIED[index])
        requests.append((0.0, f"r{index}", [*shared, 400 + index], params))
    outputs: dict[str, list[int]] = {}
    for event in run_requests(core, requests):
        outputs.setdefault(event.request_id, []).append(event.token_id)
    assert (core.stats().preemptions > 0) == (config.kv_tokens < 64)
    assert (core.stats().prefix_hits > 0) == config.prefix_cache
    return outputs
