"""What limits a server: seen in simulations that lack one thing each, and judged on made steps."""

import pandas as pd
import pytest

from servetwin.app.scenario.files.scenario_file import parse_scenario
from servetwin.sim.core.recorder import STEP_COLUMNS
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.explain.bottleneck import Limiting, find_bottleneck, limiting_resource
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import Run

TTFT, TPOT = SLO(ttft_s=0.5), SLO(tpot_s=0.02)


def simulated(text: str, slo: SLO = TTFT) -> Limiting:
    file = parse_scenario(text, "test")
    trace = file.workload.trace(0)
    scenario = file.build(trace)
    policies = scenario.policies
    run = run_once(trace, scenario)
    pressed = find_bottleneck(run, policies.as_dict(), policies.kv_tokens)
    return limiting_resource(run, pressed, policies.as_dict(), slo)


@pytest.mark.parametrize(
    ("policies", "resource"),
    [
        ("policies: {max_seqs: 4}", "sequences"),
        ("policies: {kv_tokens: 8192}", "memory"),
        ("policies: {batching: static, max_seqs: 8}", "batch"),
    ],
)
def test_what_most_waiting_is_for_is_named(policies: str, resource: str) -> None:
    found = simulated(f"workload: {{requests: 400, rate_per_s: 20}}\n{policies}")
    assert found.resource == resource
    assert found.share_of_waiting is not None
    assert found.share_of_waiting > 0.8


PROMPTS = "workload: {requests: 200, rate_per_s: 20, prompt_tokens: 6000, prompt_cv: 0.2, "


def test_long_prompts_want_compute_and_short_ones_a_larger_budget() -> None:
    room = "policies: {kv_tokens: 10000000"
    compute = simulated(f"{PROMPTS}output_tokens: 10}}\n{room}, token_budget: 8192}}")
    assert compute.resource == "prefill"
    many = "workload: {requests: 2000, rate_per_s: 400, prompt_tokens: 60, output_tokens: 40}"
    room += ", token_budget: 80, max_seqs: 80, batching: chunked}"
    without_chunk_costs = "deployment: {model: llama-3-8b, gpu: h100, efficiency: compute=0.65}"
    budget = simulated(f"{many}\n{room}\n{without_chunk_costs}")
    assert budget.resource == "budget"


def test_slow_tokens_are_for_the_steps_that_take_the_time() -> None:
    decodes = "workload: {requests: 200, rate_per_s: 8, prompt_tokens: 50, output_tokens: 200}"
    assert simulated(decodes, SLO(tpot_s=0.001)) == Limiting("decode")
    prompts = PROMPTS.replace("rate_per_s: 20", "rate_per_s: 2")
    assert simulated(f"{prompts}output_tokens: 20}}", SLO(tpot_s=0.001)) == Limiting("prefill")


def run_of(preemptions: list[int]) -> Run:
    """Requests whose tokens are too late, on a server that computes decodes only."""
    requests = pd.DataFrame({
        "scheduled_s": range(len(preemptions)), "prompt_tokens": 100, "preemptions": preemptions,
        "ttft_s": 0.1, "tpot_s": 0.5, "e2e_s": 3.0,
    })  # fmt: skip
    step = {"start_s": 0.0, "end_s": 9.0, "steps": 90, "decode_sequences": 4, "running": 4}
    return Run(
        "simulation", requests, pd.DataFrame([step], columns=list(STEP_COLUMNS)).fillna(0), {}
    )


@pytest.mark.parametrize(
    ("preemptions", "resource"),
    [([1, 2, 0], "memory"), ([1, 0, 0], "decode"), ([0, 0, 0], "decode")],
)
def test_slow_tokens_of_requests_that_lost_their_memory_are_for_memory(
    preemptions: list[int], resource: str
) -> None:
    run = run_of(preemptions)
    policies = {"batching": "continuous", "max_seqs": 8, "token_budget": 512}
    found = limiting_resource(run, find_bottleneck(run, policies, 1000), policies, TPOT)
    assert found == Limiting(resource)  # type: ignore[arg-type]
