"""Ranks that share experts: as fast as an even spread if they are equal, else as the slowest."""

from dataclasses import replace

import numpy as np
import pytest

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.step_times.protocol import GroupStepTime
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.parallel import Parallel
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.trace import Trace
from tests.support.checked import request

MOE, DENSE, H100 = find_model("qwen3-30b-a3b"), find_model("llama-3-8b"), find_hardware("h100")
SPREAD = Deployment(MOE, H100, parallel=Parallel(expert=2))
NOTHING = BatchShape(0, 0, 0)


def ranks() -> GroupStepTime:
    parallel = replace(SPREAD.parallel, lockstep=True)
    model = roofline_step_time(replace(SPREAD, parallel=parallel))
    assert isinstance(model, GroupStepTime)
    return model


@pytest.mark.parametrize(
    ("one", "both"),
    [
        (BatchShape(8, 8 * 500, 8), BatchShape(16, 16 * 500, 16)),
        (BatchShape(0, 0, 0, ((100, 700),)), BatchShape(0, 0, 0, ((100, 700),) * 2)),
        (BatchShape(8, 800, 8, ((0, 70),)), BatchShape(16, 1600, 16, ((0, 70),) * 2)),
    ],
)
def test_equal_ranks_are_an_even_spread(one: BatchShape, both: BatchShape) -> None:
    spread_s = roofline_step_time(SPREAD).seconds(both, 3)
    np.testing.assert_allclose(
        ranks().group_seconds([one, one], 3), spread_s, rtol=1e-8
    )  # slopes are whole units


def test_unequal_ranks_take_the_slowest_and_the_experts_of_all() -> None:
    decodes, chunk = BatchShape(8, 8 * 500, 8), BatchShape(0, 0, 0, ((0, 2048),))
    together, model = ranks().group_seconds([decodes, chunk])[0], ranks()
    alone = model.group_seconds([NOTHING, chunk])[0]
    assert alone < together < model.group_seconds([chunk, chunk])[0]
    assert together == model.group_seconds([chunk, decodes])[0]


def test_a_layout_makes_ranks_of_a_model_with_experts_and_servers_of_another() -> None:
    layout = Layout(dp=2, ep=2)
    trace = Trace(tuple(request(str(i), 0.001 * i, 100, 20) for i in range(40)), "made")
    scenario = Setup.of(Deployment(MOE, H100)).with_layout(layout).scenario()
    assert (scenario.cluster.ranks, scenario.cluster.router) == (2, "vllm-dp")
    spread = Setup.of(SPREAD).scenario().policies.kv_tokens
    assert scenario.policies.kv_tokens == spread // 2
    run = run_once(trace, scenario)
    assert (run.requests["status"] == "finished").all()
    assert set(run.requests["replica"]) == {0, 1}
    servers = Setup.of(Deployment(DENSE, H100)).with_layout(layout).scenario()
    assert (servers.cluster.replicas, servers.cluster.ranks) == (2, 1)
    sliced = Setup.of(Deployment(MOE, H100)).with_layout(Layout(dp=2)).scenario()
    assert sliced.policies.kv_tokens == scenario.policies.kv_tokens
