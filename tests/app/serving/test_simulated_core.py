"""The core without a model: what the simulator decides, when the simulator decides it."""

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.app.serving.simulated import (
    SPIN_S,
    Answers,
    SimulatedCore,
    SimulatedExecutor,
    StepTimer,
)
from servetwin.engine.core.core_process import CoreLoop
from servetwin.engine.core.messages import Stop, TokenEvent
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.text.byte_tokenizer import FIRST_WORD_ID
from servetwin.policies.batch import BatchShape
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.step_record import StepRecord
from servetwin.sim.core.simulate import simulate
from servetwin.sim.experiments.decision_check import check_decisions
from servetwin.sim.step_times.step_time import (
    FloatArray,
    LinearStepTime,
    NoiseSample,
    StepNoise,
    StepTime,
)
from servetwin.workloads.request import Request
from tests.support.core_story import FakeClock, Script, ScriptedInbox, add
from tests.support.memory_step_log import MemoryStepLog

pytest.importorskip("uvicorn")


READING_S = 2.0**-16
"""What a look at the clock costs: the core's own work between two steps is a few of them."""
STEP_TIME = LinearStepTime.of(
    {
        "constant": 0.004,
        "rows_from_0": 0.0003,
        "decode_context_tokens": 1e-6,
        "swapped_tokens": 1e-5,
    }
)
NOISE = np.linspace(0.7, 1.3, 31)


class TickingClock(FakeClock):
    """Every reading takes a little while, and every sleep is a little too long.

    It ticks as ``engine.core.core.CoreClock`` does, so that sums of its times are exact.
    """

    def __call__(self) -> float:
        self.now_s = ceil((self.now_s + READING_S) * 2**30) / 2**30
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds + SPIN_S / 2


BASE = PolicyConfig(
    kv_tokens=192, block_tokens=8, max_model_len=96, max_seqs=8, token_budget=24, wait_limit_s=0.01
)
POLICIES = {
    "continuous": BASE,
    "chunked": replace(BASE, batching="chunked"),
    "prefill-first": replace(BASE, batching="prefill-first"),
    "insertion": replace(BASE, batching="insertion"),
    "static": replace(BASE, batching="static", kv="contiguous"),
    "prefix": replace(BASE, prefix_cache=True),
    # what the bundled engine cannot do
    "swap": replace(BASE, preemption="swap", host_kv_tokens=512),
    "host-tier": replace(BASE, prefix_cache=True, host_cache_tokens=512),
    "grouped": replace(BASE, kv="grouped", kv_groups="full,window:32"),
}
BURSTS_S = (0.0, 50.0, 100.0)
"""A burst comes to an idle server."""


def shapes(seed: int) -> list[tuple[float, int, int]]:
    """(arrival, prompt, output) of three bursts of twelve."""
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.integers(4, 50, 36).tolist(), rng.integers(1, 40, 36).tolist()
    arrivals_s = np.repeat(BURSTS_S, 12).tolist()
    return list(zip(arrivals_s, prompts, outputs, strict=True))


def served(config: PolicyConfig, step_time: StepTime, script: Script) -> MemoryStepLog:
    """The log of a core that serves on a clock of its own."""
    clock, log = TickingClock(), MemoryStepLog()
    noise = StepNoise(NoiseSample(NOISE), np.random.default_rng(0))
    timer = StepTimer(clock, clock.sleep)
    executor = SimulatedExecutor(Answers(vocab_size=1000), step_time, noise, timer)
    core = SimulatedCore.over(
        build_scheduler(config), executor, prefix_cache=config.prefix_cache, log=log
    )
    inbox = ScriptedInbox(clock, [*script, (1000.0, Stop())])
    CoreLoop(core, inbox, lambda update: None).run()
    return log


def simulated(config: PolicyConfig, step_time: StepTime, asked: list[Request]) -> list[StepRecord]:
    noise = StepNoise(NoiseSample(NOISE), np.random.default_rng(0))
    scheduler = build_scheduler(config)
    return simulate(asked, scheduler, step_time, noise=noise, keep_records=True).records


class ByLongestContext:
    """A step-time model that asks for every context."""

    wants_contexts = True

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        longest = max(shape.decode_contexts, default=0)
        return np.full(steps, 0.003 + 1e-5 * longest + 1e-5 * shape.rows)


@pytest.mark.parametrize("step_time", [STEP_TIME, ByLongestContext()], ids=["affine", "contexts"])
@pytest.mark.parametrize("name", ["continuous", "chunked", "prefill-first", "swap", "grouped"])
def test_it_decides_what_the_simulator_decides_when_the_simulator_does(
    name: str, step_time: StepTime
) -> None:
    config, asked = POLICIES[name], shapes(seed=1)
    script = [(at_s, add(f"r{i}", p, o)) for i, (at_s, p, o) in enumerate(asked)]
    log = served(config, step_time, script)
    records = simulated(
        config, step_time, [Request(f"r{i}", *shape) for i, shape in enumerate(asked)]
    )
    assert [r.decisions() for r in log.records] == [r.decisions() for r in records]
    assert len(records) > 150
    assert any(record.waiting for record in records)
    assert any(record.preempted for record in records)
    for real, ideal in zip(log.records, records, strict=True):
        assert real.idle_before == ideal.idle_before
        # of hundreds of steps, each decided a few readings after the one before has ended
        assert abs(real.now_s - ideal.now_s) <= 6 * READING_S, (real.step, ideal.step)


@pytest.mark.parametrize("name", POLICIES)
def test_its_own_times_replayed_give_the_identical_batches(name: str) -> None:
    rng = np.random.default_rng(7)
    arrivals_s = np.cumsum(rng.exponential(0.02, 36)).tolist()
    script: list[tuple[float, Any]] = []
    for i, (at_s, (_, p, o)) in enumerate(zip(arrivals_s, shapes(seed=2), strict=True)):
        script.append((at_s, add(f"r{i}", p, o)))
    config = POLICIES[name]
    log = served(config, STEP_TIME, script)
    decision_check = check_decisions(log.arrivals, config, log.records)
    assert decision_check.identical, (
        decision_check.agreeing,
        decision_check.engine,
        decision_check.simulator,
    )
    assert decision_check.steps == len(log.records) > 100
    assert any(record.hits for record in log.records) == config.prefix_cache
    assert any(record.waiting for record in log.records)


@given(
    prompt=st.lists(st.integers(0, 999), min_size=1, max_size=50),
    seed=st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
)
def test_an_answer_depends_on_the_prompt_and_the_seeds(prompt: list[int], seed: int | None) -> None:
    def answer(server_seed: int, prompt: list[int], seed: int | None) -> list[int]:
        answers = Answers(vocab_size=1000, seed=server_seed)
        begun = answers.begin(prompt, SamplingParams(12, seed=seed))
        return [answers.next_token(begun) for _ in range(12)]

    tokens = answer(0, prompt, seed)
    assert tokens == answer(0, prompt, seed)
    assert all(FIRST_WORD_ID <= token < 1000 for token in tokens)
    others = [answer(1, prompt, seed), answer(0, [*prompt, 1], seed), answer(0, prompt, 3)]
    assert seed == 3 or tokens not in others


def test_it_gives_several_answers_and_has_no_logprobs() -> None:
    clock = TickingClock()
    timer = StepTimer(clock, clock.sleep)
    executor = SimulatedExecutor(Answers(vocab_size=1000), STEP_TIME, None, timer)
    core = SimulatedCore.over(build_scheduler(BASE), executor)
    refusal = core.add("r", [1, 2, 3], SamplingParams(4, logprobs=0), 0.0)
    assert refusal is not None
    assert (refusal.kind, refusal.reason) == (
        "unsupported",
        "logprobs: a simulated model has none",
    )
    assert core.add("r", [1, 2, 3], SamplingParams(4, seed=5, n=3), 0.0) is None
    answers: dict[int, list[int]] = {}
    while core.unfinished:
        for event in core.step(clock()) or ():
            assert isinstance(event, TokenEvent)
            answers.setdefault(event.sample, []).append(event.token_id)
    assert [len(tokens) for tokens in answers.values()] == [4, 4, 4]
    assert len({tuple(tokens) for tokens in answers.values()}) == 3
