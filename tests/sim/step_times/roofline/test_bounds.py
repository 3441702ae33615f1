"""No step is faster than the data sheet."""

from dataclasses import replace

import pytest
from hypothesis import given

from servetwin.policies.batch import BatchShape
from servetwin.policies.protocols import KVLayout
from servetwin.sim.catalogue.catalogue import find_hardware
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment
from servetwin.sim.step_times.roofline.efficiency import IDEAL
from servetwin.sim.step_times.roofline.server import (
    BoundBroken,
    RooflineServer,
    check_bounds,
    least_read_s,
    least_token_s,
)
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.techniques.setup import Setup
from tests.support.rooflines import A100, LLAMA, REAL, shapes, trace

SHEET = Deployment(LLAMA, A100, efficiency=IDEAL, kernels=IDEAL_KERNELS)


@given(shapes)
def test_no_engine_is_faster_than_its_data_sheet(shape: BatchShape) -> None:
    ideal, real = roofline_step_time(SHEET), roofline_step_time(REAL)
    seconds = float(ideal.seconds(shape)[0])
    assert seconds <= float(real.seconds(shape)[0])
    assert seconds >= shape.rows * least_token_s(SHEET) * (1 - 1e-12)
    assert seconds >= least_read_s(SHEET) * (1 - 1e-12)


def test_every_roofline_run_is_checked_against_the_data_sheet() -> None:
    scenario = Setup.of(SHEET).scenario()
    run = run_once(trace(), scenario)
    busy = run.steps.assign(end_s=run.steps["start_s"] + 1e-3)
    with pytest.raises(BoundBroken, match="needs at least"):
        check_bounds(busy, SHEET)

    class TooFast(RooflineServer):
        def step_time(self, layout: KVLayout) -> "TooFast":
            faster = A100.model_copy(update={"memory_bytes_per_s": 1e14})
            return TooFast(replace(SHEET, hardware=faster))

    with pytest.raises(BoundBroken):
        run_once(trace(), replace(scenario, profile=TooFast(SHEET)))


def test_every_pool_is_checked_against_its_own_data_sheet() -> None:
    slow, fast = SHEET, replace(SHEET, hardware=find_hardware("h200"))
    scenario = replace(Setup.of(slow).scenario(), more_profiles=(RooflineServer(fast),))
    run = run_once(trace(), scenario)
    RooflineServer(fast).check(run, range(1, 2))
    with pytest.raises(BoundBroken):
        RooflineServer(slow).check(run, range(1, 2))


def test_saturated_throughput_stays_below_both_bounds() -> None:
    scenario = Setup.of(SHEET).scenario()
    run = run_once(trace(200, 0.0), scenario)
    summary = run.summary()
    tokens_per_s = (summary["prompt_tokens"] + summary["output_tokens"]) / summary["makespan_s"]
    assert tokens_per_s < 1 / least_token_s(SHEET)
    steps_per_s = run.steps["steps"].sum() / summary["makespan_s"]
    assert steps_per_s < 1 / least_read_s(SHEET)
