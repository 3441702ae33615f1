"""Measured parts in place of predicted ones, against a truth that is another simulation."""

from dataclasses import replace

import pytest

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.experiments.measured_parts import MeasuredParts, simulate_measured
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import LATENCIES
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.profile import load_profile
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

PROFILE = load_profile("base-cpu").scaled(0.3)
POLICIES = PolicyConfig(max_seqs=8, kv_tokens=4096, batching="chunked", token_budget=128)
SCENARIO = Scenario(POLICIES, PROFILE)
TRACE = Trace(
    tuple(Request(f"r{i}", 0.05 * i, 20 + 31 * i % 300, 5 + 7 * i % 60) for i in range(40)), "made"
)


def truth(policies: PolicyConfig = POLICIES, trace: Trace = TRACE) -> Run:
    """A server whose long prompts cost twice as much as the profile says."""
    coefficients = dict(PROFILE.layouts["paged"].coefficients)
    coefficients["prefill_pairs"] = 1e-6
    coefficients["constant"] *= 1.3
    model = PROFILE.layouts["paged"].model_copy(update={"coefficients": coefficients}).model()
    scheduler = build_scheduler(policies)
    return simulate(trace, scheduler, model, api=PROFILE.api.model(), keep_records=True)


def test_measured_steps_give_the_measured_run_itself() -> None:
    measured = truth()
    model = simulate_measured(TRACE, SCENARIO, MeasuredParts(), 0)
    again = simulate_measured(TRACE, SCENARIO, MeasuredParts(steps=measured.records), 0)
    for name in LATENCIES:
        ours, theirs = again.requests[name].to_numpy(), measured.requests[name].to_numpy()
        assert ours == pytest.approx(theirs, abs=1e-6)
        assert model.requests[name].mean() < 0.9 * measured.requests[name].mean()


def test_where_batches_differ_steps_keep_the_pace_of_their_moment_and_kind() -> None:
    """Steps with prompts take twice as long from the second second on; decodes as ever."""
    plain = simulate(
        TRACE, build_scheduler(POLICIES), PROFILE.layouts["paged"].model(), keep_records=True
    )
    steps = [replace(step, duration_s=step.duration_s, idle_before=True) for step in plain.records]
    slower = [
        replace(step, duration_s=2 * step.duration_s)
        if step.now_s > 1 and step.shape().prefill_chunks
        else step
        for step in steps
    ]
    one, two = (
        simulate_measured(TRACE, SCENARIO, MeasuredParts(steps=those), 0).steps
        for those in (steps, slower)
    )
    lasted = [(frame["end_s"] - frame["start_s"]) for frame in (one, two)]
    early = one["start_s"] < 0.9
    assert lasted[0][early].tolist() == lasted[1][early].tolist()
    decodes = [
        took[frame["prefill_chunks"] == 0] for took, frame in zip(lasted, (one, two), strict=True)
    ]
    assert decodes[1].max() < 1.1 * decodes[0].max()
    late = [took[(frame["prefill_chunks"] > 0) & (frame["start_s"] > 1.5)].mean()
            for took, frame in zip(lasted, (one, two), strict=True)]  # fmt: skip
    assert late[1] > 1.7 * late[0]


def test_nothing_imposed_is_the_simulation_itself() -> None:
    from servetwin.sim.experiments.predict import run_once

    expected = run_once(TRACE, SCENARIO, seed=7).requests
    assert simulate_measured(TRACE, SCENARIO, MeasuredParts(), 7).requests.equals(expected)
