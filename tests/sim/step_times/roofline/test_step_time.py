"""Runs of steps are their single steps, and grow with the batch."""

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.catalogue.catalogue import (
    find_hardware,
    find_model,
)
from servetwin.sim.catalogue.shipped import shipped_hardware, shipped_models
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.step_times.step_time import AffineStepTime
from tests.support.effort import examples
from tests.support.rooflines import REAL, shapes, trace


@given(shapes, st.integers(2, 30))
def test_a_run_of_steps_is_its_steps_one_by_one(shape: BatchShape, steps: int) -> None:
    model = roofline_step_time(REAL)
    alone = [
        float(
            model.seconds(
                shape._replace(
                    decode_context_tokens=shape.decode_context_tokens + j * shape.decode_growing
                )
            )[0]
        )
        for j in range(steps)
    ]
    assert model.seconds(shape, steps).tolist() == alone


def test_step_times_of_every_model_on_every_device_grow_with_the_batch() -> None:
    for model_name in shipped_models():
        for hardware in shipped_hardware():
            shape, device = find_model(model_name), find_hardware(hardware)
            lacks = "fp8" not in device.peak_flops_per_s and "fp8-block" not in device.weight_only
            if lacks and shape.quantisation.gemm == "fp8-block":
                continue
            model = roofline_step_time(Deployment(shape, device))
            contexts = tuple([300] * 8)
            few = BatchShape(1, 300, 1, (), 0, 0, contexts[:1])
            many = BatchShape(8, 2400, 8, (), 0, 0, contexts)
            assert 0 < model.seconds(few)[0] < model.seconds(many)[0]


@settings(max_examples=examples(15))
@given(
    st.sampled_from(["continuous", "chunked", "static", "prefill-first", "insertion"]),
    st.integers(2, 64),
    st.integers(1, 10),
)
def test_macro_steps_change_nothing_on_a_roofline(batching: str, seqs: int, load: int) -> None:
    config = PolicyConfig(batching=batching, max_seqs=seqs, kv_tokens=4096, token_budget=512)
    runs = [
        simulate(
            trace(apart_s=0.5 / load),
            build_scheduler(config),
            roofline_step_time(REAL),
            macro=macro,
        )
        for macro in (True, False)
    ]
    pd.testing.assert_frame_equal(runs[0].requests, runs[1].requests)


def test_a_plain_roofline_is_affine_so_it_is_fast() -> None:
    assert isinstance(roofline_step_time(REAL), AffineStepTime)
