"""Step times where every context counts: windows, budgets, dilation."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.policies.batch import Batch, BatchShape
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.registry import SCHEDULERS
from servetwin.sim.catalogue.layers import Dense
from servetwin.sim.catalogue.model import LayerGroup
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment, Kernels, Offload
from servetwin.sim.step_times.roofline.efficiency import DEFAULT, IDEAL
from servetwin.sim.step_times.roofline.parallel import Parallel
from servetwin.sim.step_times.roofline.step_time import (
    ContextStepTime,
    UncachedStepTime,
    roofline_step_time,
)
from servetwin.sim.step_times.step_time import (
    FloatArray,
    NoiseSample,
    StepNoise,
    StepTime,
    shape_with_contexts,
)
from servetwin.workloads.request import Request
from tests.support.checked import CheckedScheduler
from tests.support.effort import examples
from tests.support.macro_steps import assert_macro_steps_change_nothing
from tests.support.random_runs import policies, workloads
from tests.support.scheduler_steps import sequence
from tests.support.small_models import A100, FULL, STATE, attention, mixers, model_of, step_s

kernels = st.sampled_from(
    [
        IDEAL_KERNELS,
        Kernels(occupancy="heads"),
        Kernels(occupancy="split", split_tokens=64, synchronised=True),
    ]
)
parallel = st.sampled_from(
    [Parallel(), Parallel(tensor=2), Parallel(pipeline=2), Parallel(sequence=2)]
)


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    """A small model in which something may see a part of its context only."""
    return Deployment(
        model_of(*draw(st.lists(mixers, min_size=1, max_size=3))),
        A100,
        draw(st.sampled_from([IDEAL, DEFAULT])),
        kernels=draw(kernels),
        parallel=draw(parallel),
        offload=draw(st.sampled_from([Offload(), Offload(resident_kv=0.3, prefetch=False)])),
        kv_cache=draw(st.sampled_from([True, True, True, False])),
    )


@st.composite
def shapes(draw: st.DrawFn) -> BatchShape:
    """A batch of decodes, some of which have ended and do not grow, and up to two chunks."""
    contexts = tuple(draw(st.lists(st.integers(1, 3000), max_size=12)))
    chunk = st.tuples(st.integers(0, 2000), st.integers(2, 300))
    chunks = tuple(draw(st.lists(chunk, min_size=0 if contexts else 1, max_size=2)))
    growing = draw(st.integers(0, len(contexts)))
    return BatchShape(
        len(contexts), sum(contexts), growing, chunks, draw(st.sampled_from([0, 70])), 0, contexts
    )


def grown(shape: BatchShape, steps: int) -> BatchShape:
    """The batch after so many repetitions."""
    contexts = tuple(
        length + steps * (place < shape.decode_growing)
        for place, length in enumerate(shape.decode_contexts)
    )
    return shape._replace(decode_contexts=contexts, decode_context_tokens=sum(contexts))


@given(deployment=deployments(), shape=shapes(), steps=st.integers(1, 40))
def test_a_run_of_steps_is_its_single_steps_to_the_last_bit(
    deployment: Deployment, shape: BatchShape, steps: int
) -> None:
    model = roofline_step_time(deployment)
    run_s = model.seconds(shape, steps)
    single_s = [float(model.seconds(grown(shape, j))[0]) for j in range(steps)]
    assert run_s.tolist() == single_s
    assert (run_s > 0).all()


@pytest.mark.parametrize("efficiency", [IDEAL, DEFAULT])
def test_a_window_that_holds_everything_is_no_window(efficiency: Any) -> None:
    contexts = [5, 900, 1234]
    plain = Deployment(model_of(FULL), A100, efficiency)
    wide = replace(plain, model=model_of(attention(window_tokens=1234)))
    assert isinstance(roofline_step_time(wide), ContextStepTime)
    assert step_s(wide, contexts) == pytest.approx(step_s(plain, contexts), abs=rounding(contexts))


def rounding(contexts: list[int]) -> float:
    """An affine model keeps its slope, as its constant, in units of 2^-48 s."""
    return (sum(contexts) + 3) * 2.0**-49


@given(
    contexts=st.lists(st.integers(1, 5000), min_size=1, max_size=8),
    windows=st.lists(st.integers(1, 5000), min_size=2, max_size=4),
    field=st.sampled_from(["window_tokens", "budget_tokens"]),
    kernels=kernels,
)
def test_a_longer_window_is_never_quicker(
    contexts: list[int], windows: list[int], field: str, kernels: Kernels
) -> None:
    if kernels.occupancy == "split":
        kernels = replace(kernels, occupancy="full")  # there a longer context fills more SMs
    plain = Deployment(model_of(FULL), A100, IDEAL, kernels=kernels)
    steps = [
        step_s(replace(plain, model=model_of(attention(**{field: window}))), contexts)
        for window in sorted(windows)
    ]
    assert all(shorter <= longer for shorter, longer in pairwise(steps))
    assert steps[-1] <= step_s(plain, contexts) + rounding(contexts)


def test_beyond_windows_a_step_is_flat_and_a_hybrid_keeps_its_global_layers_slope() -> None:
    plain = Deployment(model_of(FULL, layers=6), A100, IDEAL, kernels=IDEAL_KERNELS)
    local = LayerGroup(count=5, mixer=attention(window_tokens=100), ffn=Dense(width=1024))
    whole = LayerGroup(count=1, mixer=FULL, ffn=Dense(width=1024))
    window = replace(plain, model=model_of(attention(window_tokens=100), layers=6))
    hybrid = replace(plain, model=window.model.model_copy(update={"layers": (local, whole)}))

    def slope(deployment: Deployment) -> float:
        return step_s(deployment, [9000]) - step_s(deployment, [1000])

    assert slope(window) == 0
    assert slope(hybrid) == pytest.approx(slope(plain) / 6, rel=1e-6)


WHOLE_RUNS: dict[str, StepTime] = {
    name: roofline_step_time(deployment)
    for name, deployment in {
        "window": Deployment(model_of(attention(window_tokens=9, sink_tokens=2)), A100),
        "hybrid": Deployment(model_of(attention(window_tokens=9), FULL, STATE), A100),
        "budget": Deployment(model_of(attention(budget_tokens=20, dilation=2)), A100),
        "heads": Deployment(model_of(FULL), A100, kernels=Kernels(occupancy="heads")),
        "split": Deployment(
            model_of(FULL),
            A100,
            kernels=Kernels(occupancy="split", split_tokens=8, synchronised=True),
        ),
        "uncached": Deployment(model_of(FULL), A100, kv_cache=False),
    }.items()
}


def test_these_models_want_every_context() -> None:
    assert {type(model) for model in WHOLE_RUNS.values()} == {ContextStepTime, UncachedStepTime}


@pytest.mark.parametrize("name", sorted(WHOLE_RUNS.keys() - {"uncached"}))
def test_pieces_of_a_run_are_its_single_steps(name: str) -> None:
    model = WHOLE_RUNS[name]
    assert isinstance(model, ContextStepTime)
    group = Lockstep(4)
    for computed in (3, 6, 30, 4):
        seq = sequence(str(computed), computed, 60)
        seq.base_computed_tokens, seq.base_generated_tokens = computed, 1
        group.join(seq)
    batch = Batch((), group)
    shape = shape_with_contexts(batch)
    pieces = model.run_pieces(batch, 50)
    units = [first + slope * j for first, slope, steps in pieces for j in range(steps)]
    assert [unit * 2.0**-56 for unit in units] == model.seconds(shape, 50).tolist()
    assert len(pieces) == PIECES[name]


PIECES = {"window": 3, "hybrid": 3, "budget": 50, "heads": 1, "split": 7}


def test_macro_steps_equal_single_steps_without_noise() -> None:
    for model in WHOLE_RUNS.values():
        assert_macro_steps_change_nothing(model)


def run(
    config: Any, requests: list[Request], model: StepTime, noise: FloatArray, macro: bool
) -> Any:
    """One simulation under the eye of the law checker."""
    drawn = StepNoise(NoiseSample(noise), np.random.default_rng(0))
    return simulate(requests, CheckedScheduler(config), model, noise=drawn, macro=macro)


@pytest.mark.parametrize("batching", SCHEDULERS)
@settings(max_examples=examples(25))
@given(data=st.data(), requests=workloads())
@pytest.mark.slow
def test_macro_steps_equal_single_steps_where_every_context_counts(
    batching: str, data: st.DataObject, requests: list[Request]
) -> None:
    config = data.draw(policies(batching))
    if not config.prefix_cache and data.draw(st.booleans()):
        config = config.changed(kv="grouped", kv_groups="full,window:16")
    model = WHOLE_RUNS[data.draw(st.sampled_from(sorted(WHOLE_RUNS)))]
    noise = np.array(data.draw(st.sampled_from([[1.0], [0.9, 1.0, 1.3]])))
    single = run(config, requests, model, noise, macro=False)
    macro = run(config, requests, model, noise, macro=True)
    pd.testing.assert_frame_equal(single.requests, macro.requests, check_exact=True)
    assert single.extra["simulation"]["steps"] == macro.extra["simulation"]["steps"]
    assert single.pauses.equals(macro.pauses)
