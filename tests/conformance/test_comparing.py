"""Differences are made small, and what they cost is known."""

from dataclasses import replace

import pytest

from servetwin.policies.batch import shape_of
from servetwin.sim.step_times.profile import load_profile
from tests.conformance.cost import PROFILE, cost
from tests.conformance.random_workloads import random_workload
from tests.conformance.shrinking import shrink
from tests.conformance.workload import Asked, Step, Workload


def test_a_workload_shrinks_to_what_differs() -> None:
    def differs(workload: Workload) -> bool:
        return workload.prefix_cache and any(len(one.answer) > 3 for one in workload.requests)

    workload = replace(random_workload(7), prefix_cache=True)
    smallest = shrink(workload, differs)
    assert [(len(one.prompt), len(one.answer), one.n) for one in smallest.requests] == [(1, 4, 1)]
    assert smallest.prefix_cache
    assert not smallest.decide_ahead
    assert not smallest.priorities
    assert smallest.blocks == workload.blocks


def test_the_cost_of_steps_is_theirs_in_the_profile() -> None:
    asked = Asked("a", [1] * 16, [2] * 3, arrival_step=2)
    follower = Asked("b", [1] * 16, [2], arrival_step=0, parent="a")
    entries = [(0, 16), (16, 1), (17, 1), (0, 16)]
    ends = [[], [], ["a"], ["b"]]
    steps = [
        Step({"b" if place == 3 else "a": list(entry)}, [], ends[place], 0, number=2 + place)
        for place, entry in enumerate(entries)
    ]
    model = load_profile(PROFILE).layouts["paged"].model()
    ms = [1e3 * float(model.seconds(shape_of([(*entry, 0)]))[0]) for entry in entries]
    found = cost(replace(random_workload(0), requests=[asked, follower]), steps)
    assert found.steps == 4
    assert found.ttft_ms == pytest.approx((ms[0] + ms[3]) / 2)
    assert found.tpot_ms == pytest.approx((ms[1] + ms[2]) / 2)
    assert found.beside(found._replace(steps=5)) == "+25.0 %, +0.0 %, +0.0 %"
