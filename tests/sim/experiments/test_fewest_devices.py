"""The search for the fewest devices: against an exhaustive one, and at loads beside the plan."""

from dataclasses import replace
from typing import Any

import pytest

from servetwin.app.scenario.files.scenario_file import Workload
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.experiments import fewest_devices as fewest_devices_module
from servetwin.sim.experiments import how_many
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.sim.experiments.fewest_devices import (
    Candidate,
    PlanQuestion,
    fewest_devices,
    layouts,
)
from servetwin.sim.experiments.fleet import Replicas, times
from servetwin.sim.experiments.how_many import CountQuestion, search
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate, limit

MODEL, LLAMA = "qwen3-14b", "meta-llama/Llama-3.1-8B-Instruct"
RATE_PER_S = 60.0


def candidates(gpu: str) -> list[Candidate]:
    possible = []
    for layout in layouts(find_model(MODEL)):
        deployment = Deployment(model=MODEL, gpu=gpu, layout=str(layout), efficiency="compute=0.65")
        try:
            scenario = deployment.scenario()
        except ServetwinError:
            continue
        possible.append(Candidate((str(layout),), layout, scenario))
    return possible


def question(
    slo: SLO, rate_per_s: float = RATE_PER_S, most: int = 12, requests: int = 100
) -> PlanQuestion:
    trace = at_rate(limit(sample_trace(), requests), rate_per_s)
    return PlanQuestion(trace, SLOTarget(slo, 0.95), most, replications=2)


@pytest.mark.parametrize(
    ("gpu", "slo"),
    [
        ("l40s", SLO(ttft_s=0.5, tpot_s=0.1)),
        ("h100", SLO(ttft_s=0.1, tpot_s=0.012)),
    ],
)
def test_the_winner_is_that_of_an_exhaustive_search(gpu: str, slo: SLO) -> None:
    asked = question(slo)
    every = []
    for one in candidates(gpu):
        result = search(Replicas(asked.trace, one.scenario), CountQuestion(asked.target, 12))
        if result.count is not None:
            every.append(result.count * one.layout.devices)
    for one in candidates(gpu):
        most = (min(every) - 1) // one.layout.devices
        if servers := fewest_apart(asked.trace, one, asked.target, most):
            every.append(servers * one.layout.devices)
    planned = fewest_devices(asked, candidates(gpu))
    assert planned.at.holds
    assert planned.devices == min(every)


def test_the_limit_holds_below_the_planned_capacity_and_not_above() -> None:
    asked = question(SLO(ttft_s=0.3, tpot_s=0.1), requests=240)
    planned = fewest_devices(asked, candidates("l40s"))
    assert planned.at.holds
    assert planned.capacity_per_s is not None
    capacity = planned.capacity_per_s
    assert capacity.low <= capacity.value <= capacity.high
    assert capacity.value >= asked.trace.rate_per_s
    servers = times(planned.candidate.scenario, planned.at.count)
    holds = [
        asked.target.shares(run_once(at_rate(asked.trace, share * capacity.value), servers))["all"]
        >= asked.target.attainment
        for share in (0.95, 1.1)
    ]
    assert holds == [True, False]


def test_what_no_number_of_devices_holds_is_told_with_what_they_can() -> None:
    missed = fewest_devices(question(SLO(ttft_s=0.5, tpot_s=0.001)), candidates("l40s"))
    assert not missed.at.holds
    assert missed.alone
    least_s = missed.at.latencies_s["tpot_s"]
    assert least_s > 0.001
    slow = SLO(ttft_s=0.5, tpot_s=1.3 * least_s)
    held = fewest_devices(question(slo=slow, rate_per_s=4.0), candidates("l40s"))
    assert held.at.holds


def test_too_few_devices_are_told_by_the_nearest_miss() -> None:
    missed = fewest_devices(question(SLO(ttft_s=0.5), 400.0, most=2), candidates("l40s"))
    assert not missed.at.holds
    assert not missed.alone


def test_a_long_trace_takes_few_simulations_of_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = sample_trace().requests
    requests = [
        replace(sample[n % len(sample)], request_id=str(n), arrival_s=n / RATE_PER_S)
        for n in range(4000)
    ]
    trace = sample_trace().replaced(requests, "many times over")
    long = PlanQuestion(trace, SLOTarget(SLO(ttft_s=0.5, tpot_s=0.1), 0.95), 12, replications=2)
    simulated = list[int]()

    def counted(trace: Trace, *rest: Any, **settings: Any) -> Run:
        simulated.append(len(trace))
        return run_once(trace, *rest, **settings)

    for module in (fewest_devices_module, how_many):
        monkeypatch.setattr(module, "run_once", counted)
    planned = fewest_devices(long, candidates("h100"))
    assert planned.capacity_per_s is not None
    low, high = planned.capacity_per_s.low, planned.capacity_per_s.high
    assert planned.capacity_per_s.value / 3 < low < planned.capacity_per_s.value < high
    assert len(long.part) == 2000
    assert long.part.rate_per_s == pytest.approx(trace.rate_per_s)
    assert simulated.count(len(trace)) <= 6
    assert sum(simulated) <= 8 * len(trace)


LONG = Workload(requests=200, rate_per_s=10.0, prompt_tokens=4000, output_tokens=300).trace(0)
"""Prompts that hold decodes up."""


def served(*widths: int) -> list[Candidate]:
    layouts = [Layout(width) for width in widths]
    return [
        Candidate(
            (),
            layout,
            Deployment(model=LLAMA, gpu="h100", layout=str(layout), server="vllm").scenario(),
        )
        for layout in layouts
    ]


def fewest_apart(trace: Trace, candidate: Candidate, target: SLOTarget, most: int) -> int | None:
    """Return the fewest servers, of all numbers of prefill and decode servers."""
    for servers in range(2, most + 1):
        for prefill in range(1, servers):
            scenario = candidate.apart(prefill, servers - prefill).scenario
            if search(Replicas(trace, scenario), CountQuestion(target, 1, one_more=False)).count:
                return servers
    return None


@pytest.mark.slow
def test_prefill_and_decode_are_apart_where_fewer_devices_hold_the_target() -> None:
    target = SLOTarget(SLO(ttft_s=1.0, tpot_s=0.015), 0.95)
    together = served(1, 2)
    planned = fewest_devices(PlanQuestion(LONG, target, 16, replications=0), together)
    counts = [
        search(Replicas(LONG, one.scenario), CountQuestion(target, 16)).count for one in together
    ]
    least = min(n * one.layout.devices for n, one in zip(counts, together, strict=True) if n)
    cluster = planned.candidate.scenario.cluster
    assert cluster.splits
    assert planned.servers == cluster.prefill_replicas + cluster.decode_replicas
    assert planned.devices < least
    assert planned.servers == fewest_apart(LONG, together[0], target, least)
    assert planned.capacity_per_s is not None
    for share, holds in ((0.95, True), (1.1, False)):
        trace = at_rate(LONG, share * planned.capacity_per_s.value)
        run = run_once(trace, planned.candidate.scenario)
        assert (target.shares(run)["all"] >= target.attainment) is holds
    spares = PlanQuestion(LONG, target, 16, replications=0, spares=least)
    assert not fewest_devices(spares, together[:1]).candidate.scenario.cluster.splits


def test_servers_stay_together_where_decodes_are_not_held_up() -> None:
    target = SLOTarget(SLO(ttft_s=1.0, tpot_s=0.1), 0.95)
    (one,) = served(1)
    planned = fewest_devices(PlanQuestion(LONG, target, 16, replications=0), [one])
    assert not planned.candidate.scenario.cluster.splits
    apart = fewest_apart(LONG, one, target, planned.servers - 1)
    assert planned.servers > 2
    assert apart is None


def test_layouts_fill_one_machine_at_most_and_experts_have_their_own() -> None:
    dense = list(layouts(find_model(MODEL)))
    assert max(layout.devices for layout in dense) == 8
    assert len({*dense}) == len(dense) == 10
    assert all(layout.ep == 1 for layout in dense)
    assert Layout(dp=4, ep=4) in layouts(find_model("qwen3-30b-a3b"))
