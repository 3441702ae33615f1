"""A setting that was stated wrongly is named, by stamps alone or with a step log; else none."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from servetwin.app.verdict.measured_facts import measured_facts
from servetwin.app.verdict.why.explanation import Explanation, explain_error
from servetwin.app.verdict.why.hypotheses import tied
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.recorder import Recorder
from servetwin.sim.core.simulate import simulate
from servetwin.sim.experiments.measured_parts import MeasuredPace, Pace
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.profile import load_profile
from servetwin.sim.step_times.step_time import NoiseSample, StepNoise
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.stamped_runs import token_stamps_s

PROFILE = load_profile("base-cpu").scaled(0.3)
POLICIES = PolicyConfig(max_seqs=8, kv_tokens=4096, batching="chunked", token_budget=128)
STATED = Scenario(POLICIES, PROFILE)
TRACE = Trace(
    tuple(
        Request(
            f"r{i}", 0.07 * i + 0.3 * (i // 10), 160, 8 + 37 * i % 50,
            prefix_block_ids=(*range(6), *range(100 * i, 100 * i + 4)), block_tokens=16,
        )
        for i in range(60)
    ),
    "made",
)  # fmt: skip
WANDER = NoiseSample(np.exp(0.05 * np.random.default_rng(0).standard_normal(500)), 0.97)
"""A machine whose speed wanders by 5 %, for some 30 steps each way."""


def explained(
    stated: Scenario,
    truth: Scenario,
    *,
    logs: bool,
    seed: int = 0,
    on_simulation: Callable[[int], None] = lambda done: None,
) -> Explanation:
    """Explain the error of a prediction by a run of ``truth``, with its step log or without."""
    scheduler = build_scheduler(truth.policies)
    steps = truth.profile.step_time(scheduler.memory.layout).model()
    noise = StepNoise(WANDER, np.random.default_rng(seed))
    api = truth.profile.api.model()
    run = simulate(TRACE, scheduler, steps, api=api, noise=noise, keep_records=True)
    rows = run.requests.assign(queue_s=np.nan, cached_tokens=0)
    facts = measured_facts(Run("loadtest", rows, run.steps, {"trace": "made"}), TRACE)
    facts = replace(facts, steps=run.records if logs else None)
    return explain_error(stated, facts, on_simulation=on_simulation)


SLOW_API = PROFILE.model_copy(update={"api": PROFILE.api.model_copy(update={"request_s": 0.05})})


def server(**settings: object) -> Scenario:
    return Scenario(replace(POLICIES, **settings), PROFILE)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("logs", "truth", "names"),
    [
        (True, server(kv_tokens=768), {"KV tokens"}),
        (True, Scenario(POLICIES, PROFILE.scaled(1.2)), {"step times"}),
        (True, Scenario(POLICIES, SLOW_API), {"API time"}),
        (True, STATED, set()),
        (False, server(token_budget=32), {"token budget"}),
        (False, server(max_seqs=3), {"sequences", "KV tokens"}),
        (False, server(batching="static"), {"batching"}),
        (False, server(prefix_cache=True), {"prefix cache"}),
        (False, STATED, set()),
    ],
    ids=lambda value: "+".join(sorted(value)) if isinstance(value, set) else "",
)
def test_the_setting_that_was_stated_wrongly_is_named(
    logs: bool, truth: Scenario, names: set[str]
) -> None:
    """Three sequences hold as much as few KV tokens do, so both are named."""
    found = explained(STATED, truth, logs=logs)
    assert {one.name for one in tied(found.hypotheses)} == names
    best = found.hypotheses[0]
    assert best.misses["ttft_s"] < 0.08


@pytest.mark.parametrize(
    ("scale", "names"),
    [
        ((1.2, 1.2), set()),
        ((1.15, 1.0), {"step times of decodes"}),
        ((1.0, 1.2), {"step times of prompts"}),
    ],
)
def test_stamps_name_steps_that_differ_by_kind_and_not_a_machine_that_drifts(
    scale: tuple[float, float], names: set[str]
) -> None:
    """The speed of the machine wanders by 10 %, on top of a factor for each kind of step."""
    at_s = np.arange(0.0, 20.0, 0.5)
    speed = np.exp(0.1 * np.sin(at_s))
    paces = {bool(kind): (scale[kind] * speed).tolist() for kind in (0, 1)}
    scheduler = build_scheduler(POLICIES)
    model = PROFILE.step_time(scheduler.memory.layout).model()
    paced = MeasuredPace(scheduler, model, Pace(dict.fromkeys(paces, at_s.tolist()), paces))
    recorder = Recorder(PROFILE.api.model(), keep_records=True)
    run = simulate(TRACE, paced, paced, recorder=recorder, macro=False)
    rows = run.requests.assign(chunk_s=run.requests["request_id"].map(token_stamps_s(run)))
    facts = measured_facts(Run("loadtest", rows, run.steps, {"trace": "made"}), TRACE)
    assert {one.name for one in tied(explain_error(STATED, facts).hypotheses)} == names


@pytest.mark.parametrize(
    ("settings", "name"), [({"kv_tokens": 768}, "KV tokens"), ({"max_seqs": 3}, "sequences")]
)
def test_the_metrics_of_a_server_tell_few_sequences_from_little_memory(
    settings: dict[str, int], name: str
) -> None:
    """Latencies alone do not: above, both are named."""
    plain = (replace(one, prefix_block_ids=(), block_tokens=None) for one in TRACE)
    trace, truth = replace(TRACE, requests=tuple(plain)), server(**settings)
    scheduler = build_scheduler(truth.policies)
    model = PROFILE.step_time(scheduler.memory.layout).model()
    run = simulate(trace, scheduler, model, api=PROFILE.api.model())
    usage = 1 - run.steps["free_kv_tokens"] / truth.policies.kv_tokens
    told = run.steps.assign(at_s=run.steps["start_s"], kv_usage=usage, preemptions=0)[::25]
    facts = measured_facts(Run("loadtest", run.requests, run.steps, {"trace": "made"}), trace)
    found = explain_error(STATED, replace(facts, server=told))
    assert {one.name for one in tied(found.hypotheses)} == {name}
    assert found.notes[2].startswith("the server's own metrics: at most ")


def test_an_estimate_is_near_the_truth() -> None:
    counted: list[int] = []
    truth = server(token_budget=32)
    found = explained(STATED, truth, logs=True, on_simulation=counted.append)
    assert counted == [*range(1, len(counted) + 1)]
    assert counted
    (budget,) = tied(found.hypotheses)
    assert (budget.name, budget.stated, budget.estimate) == ("token budget", 128, 32)
    assert budget.share > 0.95
    assert budget.misses["ttft_s"] < 0.05
