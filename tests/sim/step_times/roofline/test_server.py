"""Servers made of data sheets: their memory, their bounds, their runs of steps, their errors."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.batch import BatchShape
from policies.config import PolicyConfig
from policies.protocols import KVLayout
from policies.registry import build_scheduler
from sim.core.simulate import simulate
from sim.experiments.predict import predict_scenario, run_once
from sim.experiments.scenario import replicate
from sim.shapes.catalogue import find_hardware, find_model, shipped_hardware, shipped_models
from sim.step_times.roofline.bounds import (
    BoundBroken,
    check_bounds,
    least_read_s,
    most_tokens_per_s,
)
from sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment, Parallel
from sim.step_times.roofline.efficiency import IDEAL, Efficiency, p_norm
from sim.step_times.roofline.server import RooflineServer, RooflineStepTimes
from sim.step_times.roofline.step_time import roofline_step_time
from sim.step_times.step_time import AffineStepTime
from sim.techniques.setup import Setup
from tests.support.checked import request
from tests.support.command import refused, servetwin
from workloads.errors import PolicyError
from workloads.native import write_trace
from workloads.request import Request
from workloads.trace import Trace

LLAMA, A100 = find_model("llama-2-7b"), find_hardware("a100-80gb")
SHEET = Deployment(LLAMA, A100, efficiency=IDEAL, kernels=IDEAL_KERNELS)
REAL = Deployment(LLAMA, A100)


def trace(requests: int = 40, apart_s: float = 0.05) -> Trace:
    rng = np.random.default_rng(7)
    lengths = rng.integers(1, 400, (requests, 2)).tolist()
    return Trace(
        tuple(Request(f"r{i}", i * apart_s, n, m) for i, (n, m) in enumerate(lengths)), "made"
    )


def test_memory_is_what_the_weights_leave() -> None:
    room = 0.9 * 80e9 - 2 * 6_738_149_376
    assert RooflineServer(REAL).policy_config().kv_tokens == int(room / 524_288)


@pytest.mark.parametrize(
    ("model", "hardware", "message"),
    [
        ("llama-2-70b", "a100-80gb", "138.0 GB of bf16 weights do not fit the 72.0 GB"),
        ("llama-2-70b", "a100-80gb", "66.0 GB too much"),
        ("llama-2-13b", "rtx-4060", "18.8 GB too much"),
    ],
)
def test_weights_that_do_not_fit_say_by_how_much(model: str, hardware: str, message: str) -> None:
    deployment = Deployment(find_model(model), find_hardware(hardware))
    with pytest.raises(PolicyError, match=message):
        Setup.of(deployment).scenario()


@pytest.mark.parametrize(
    ("parallel", "message"),
    [
        (Parallel(tensor=3), "3 ways do not divide the 32 heads"),
        (Parallel(pipeline=33), "33 stages for 32 layers"),
        (Parallel(expert=2), "no experts"),
        (Parallel(tensor=0), "at least 1"),
    ],
)
def test_splits_that_cannot_be_are_refused(parallel: Parallel, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        replace(REAL, parallel=parallel)


shapes = st.builds(
    lambda decodes, context, chunks: BatchShape(decodes, decodes * context, decodes, tuple(chunks)),
    st.integers(1, 300),
    st.integers(1, 4000),
    st.lists(st.tuples(st.integers(0, 4000), st.integers(2, 2000)), max_size=3),
)


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


@given(shapes)
def test_no_engine_is_faster_than_its_data_sheet(shape: BatchShape) -> None:
    ideal, real = roofline_step_time(SHEET), roofline_step_time(REAL)
    seconds = float(ideal.seconds(shape)[0])
    assert seconds <= float(real.seconds(shape)[0])
    assert seconds >= shape.rows / most_tokens_per_s(SHEET) * (1 - 1e-12)
    assert seconds >= least_read_s(SHEET) * (1 - 1e-12)


@given(st.floats(1e-9, 1e3), st.floats(1e-9, 1e3), st.floats(1, 16))
def test_the_knee_is_smooth_and_above_the_corner(a: float, b: float, p: float) -> None:
    assert max(a, b) <= p_norm(a, b, p) * (1 + 1e-12)
    assert p_norm(a, b, p) <= (a + b) * (1 + 1e-12)
    assert p_norm(a, b, float("inf")) == max(a, b)


def test_step_times_of_every_model_on_every_device_grow_with_the_batch() -> None:
    for model_name in shipped_models():
        for hardware in shipped_hardware():
            model = roofline_step_time(Deployment(find_model(model_name), find_hardware(hardware)))
            contexts = tuple([300] * 8)
            few = BatchShape(1, 300, 1, (), 0, 0, contexts[:1])
            many = BatchShape(8, 2400, 8, (), 0, 0, contexts)
            assert 0 < model.seconds(few)[0] < model.seconds(many)[0]


@settings(max_examples=15)
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


def test_every_roofline_run_is_checked_against_the_data_sheet() -> None:
    scenario = Setup.of(SHEET).scenario()
    run = run_once(trace(), scenario)
    busy = run.steps.assign(end_s=run.steps["start_s"] + 1e-3)
    with pytest.raises(BoundBroken, match="needs at least"):
        check_bounds(busy, SHEET)

    class TooFast(RooflineServer):
        def step_time(self, layout: KVLayout) -> RooflineStepTimes:
            faster = A100.model_copy(update={"memory_bytes_per_s": 1e14})
            return RooflineStepTimes(replace(SHEET, hardware=faster))

    with pytest.raises(BoundBroken):
        run_once(trace(), replace(scenario, profile=TooFast(SHEET)))


def test_every_pool_is_checked_against_its_own_data_sheet() -> None:
    slow, fast = SHEET, replace(SHEET, hardware=find_hardware("h200"))
    scenario = replace(Setup.of(slow).scenario(), more_profiles=(RooflineServer(fast),))
    run = run_once(trace(), scenario)
    RooflineServer(fast).check(run, 1)
    with pytest.raises(BoundBroken):
        RooflineServer(slow).check(run, 1)


def test_saturated_throughput_stays_below_both_bounds() -> None:
    scenario = Setup.of(SHEET).scenario()
    run = run_once(trace(200, 0.0), scenario)
    summary = run.summary()
    tokens_per_s = (summary["prompt_tokens"] + summary["output_tokens"]) / summary["makespan_s"]
    assert tokens_per_s < most_tokens_per_s(SHEET)
    steps_per_s = run.steps["steps"].sum() / summary["makespan_s"]
    assert steps_per_s < 1 / least_read_s(SHEET)


def test_intervals_come_from_the_spread_of_efficiencies() -> None:
    certain = Efficiency(compute_spread=0, memory_spread=0, overhead_spread=0)
    for deployment, sure in ((REAL, False), (replace(REAL, efficiency=certain), True)):
        scenario = Setup.of(deployment).scenario()
        assert scenario.is_certain() is sure
        found = predict_scenario(trace(), scenario, replications=8).interval("tpot_s.mean")
        assert found is not None
        assert (found.high - found.low < 1e-12) is sure


def test_both_sides_of_a_comparison_draw_the_same_engine() -> None:
    base = Setup.of(REAL).scenario()
    sides = [base, replace(base, policies=replace(base.policies, batching="chunked"))]
    seed = np.random.SeedSequence(3)
    first = [
        replicate(
            Trace((request("a", prompt=64, output=3),), "one"), s, seed_again(seed), draw=True
        )
        for s in sides
    ]
    assert first[0].requests["e2e_s"].tolist() == first[1].requests["e2e_s"].tolist()


def seed_again(seed: np.random.SeedSequence) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key)


def test_a_plain_roofline_is_affine_so_it_is_fast() -> None:
    assert isinstance(roofline_step_time(REAL), AffineStepTime)


@pytest.fixture
def small_trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    write_trace(trace(20), path)
    return path


def test_replay_on_a_roofline_says_what_it_rests_on(small_trace: Path) -> None:
    server = ("--model", "llama-2-7b", "--hardware", "a100-80gb")
    done = servetwin("replay", small_trace, *server, "--technique", "tensor-parallel")
    assert done.code == 0
    assert "roofline llama-2-7b on 2 x a100-80gb (assumed: 65% of FLOP/s" in done.out
    assert "rests on   roofline 100.0 % of simulated time" in done.out
    assert max(map(len, done.out.splitlines())) <= 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "llama-2-7b"), "--hardware: --model and --hardware go together"),
        (("--hardware", "h100"), "--model: --model and --hardware go together"),
        (("--technique", "tensor-parallel"), "--technique: needs --model and --hardware"),
        (("--model", "llama-2-7c", "--hardware", "h100"), "did you mean 'llama-2-7b'"),
        (("--model", "llama-2-7b", "--hardware", "h1000"), "did you mean 'h100'"),
        (
            ("--model", "llama-2-7b", "--hardware", "h100", "--efficiency", "compute=2"),
            "efficiency: compute: 2 is not possible; it must be above 0 and at most 1",
        ),
        (
            ("--model", "llama-2-7b", "--hardware", "h100", "--efficiency", "comput=1"),
            "efficiency: unknown 'comput'; did you mean 'compute'",
        ),
        (
            ("--model", "llama-2-7b", "--hardware", "h100", "--profile", "base-cpu"),
            "--profile: either a profile, or --model and --hardware",
        ),
        (
            (
                "--model",
                "llama-2-7b",
                "--hardware",
                "h100",
                "--technique",
                "tensor-parallel:ways=3",
            ),
            "3 ways do not divide the 32 heads",
        ),
        (("--where", "a=b"), "--where: chooses rows"),
    ],
)
def test_server_options_that_do_not_fit(
    small_trace: Path, options: tuple[str, ...], message: str
) -> None:
    assert message in refused("replay", small_trace, *options)
