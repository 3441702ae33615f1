"""Step times that depend on every context: windows, gaps, budgets, occupancy, states."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.batch import BatchShape
from policies.registry import SCHEDULERS
from sim.core.simulate import simulate
from sim.shapes.feed_forward import Dense, Experts
from sim.shapes.hardware import Hardware
from sim.shapes.mixers import Attention, LatentAttention, Mixer, Recurrence
from sim.shapes.model import LayerGroup, ModelShape
from sim.step_times.roofline.deployment import (
    IDEAL_KERNELS,
    Cascade,
    Deployment,
    Kernels,
    Offload,
    Parallel,
)
from sim.step_times.roofline.efficiency import DEFAULT, IDEAL
from sim.step_times.roofline.operators import (
    full_pairs,
    prefill_attention,
    seen_keys,
    seen_pairs,
    visible,
)
from sim.step_times.roofline.step_time import ContextStepTime, UncachedStepTime, roofline_step_time
from sim.step_times.step_time import FloatArray, StepNoise, StepTime
from tests.sim.core.test_laws import policies, workloads
from tests.support.checked import CheckedScheduler
from workloads.request import Request

A100 = Hardware(
    name="a100",
    peak_flops_per_s={"bf16": 312e12},
    memory_bytes_per_s=2.039e12,
    memory_bytes=80e9,
    compute_units=108,
    link_bytes_per_s=300e9,
    host_link_bytes_per_s=25e9,
    source="data sheet",
)
FULL = Attention(heads=8, kv_heads=2, head_dim=64)
LATENT = LatentAttention(heads=8, latent_dim=64, rope_dim=16, nope_dim=32, value_dim=32)
STATE = Recurrence(state_size=512 * 16, mixer_params=100_000)


def model_of(*mixers: Mixer, layers: int = 4) -> ModelShape:
    """A small model with as many layers of each mixer."""
    groups = tuple(LayerGroup(count=layers, mixer=m, ffn=Dense(width=1024)) for m in mixers)
    return ModelShape(name="small", width=512, vocabulary=1000, layers=groups, source="made up")


def attention(**changes: Any) -> Attention:
    return FULL.model_copy(update=changes)


masks = st.builds(
    attention,
    window_tokens=st.sampled_from([None, 1, 7, 64, 500]),
    sink_tokens=st.sampled_from([0, 0, 4]),
    dilation=st.sampled_from([1, 1, 2, 5]),
    budget_tokens=st.sampled_from([None, None, 33, 900]),
    rank=st.sampled_from([None, None, 16]),
)
mixers = st.one_of(masks, masks, st.just(FULL), st.just(LATENT), st.just(STATE))
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


def seen_by_hand(mixer: Attention, position: int) -> set[int]:
    """The keys that the query at a position sees: window, gaps and sinks, one by one."""
    window = mixer.window_tokens or position + 1
    near = {p for p in range(position + 1) if position - p < window}
    spaced = {p for p in near if (position - p) % mixer.dilation == 0}
    return spaced | set(range(min(mixer.sink_tokens, position + 1)))


MASKS = [
    attention(window_tokens=window, sink_tokens=sinks, dilation=dilation)
    for window, sinks, dilation in [(None, 0, 1), (5, 0, 1), (5, 3, 1), (1, 0, 1), (64, 4, 1),
                                    (None, 0, 3), (9, 0, 2), (10, 0, 4)]
]  # fmt: skip


@pytest.mark.parametrize("mixer", MASKS, ids=str)
def test_masks_are_counted_as_by_hand(mixer: Attention) -> None:
    contexts = np.arange(1, 90)
    by_hand = [len(seen_by_hand(mixer, length - 1)) for length in contexts.tolist()]
    assert visible(mixer, contexts).tolist() == by_hand
    for start, rows in [(0, 1), (0, 30), (7, 5), (40, 49), (88, 1)]:
        seen = [seen_by_hand(mixer, p) for p in range(start, start + rows)]
        assert seen_pairs(mixer, start, rows) == sum(map(len, seen))
        if mixer.dilation == 1 or rows == 1:
            assert seen_keys(mixer, start, rows) == len(set.union(*seen))


def test_a_prompt_is_attended_to_in_full_whatever_its_budget() -> None:
    budgeted = attention(budget_tokens=8)
    assert seen_pairs(budgeted, 0, 100) == full_pairs(0, 100) == 5050
    assert visible(budgeted, np.array([3, 8, 100])).tolist() == [3, 8, 8]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"window_tokens": 10}, 10),
        ({"window_tokens": 10, "sink_tokens": 4}, 14),
        ({"budget_tokens": 6}, 6),
        ({"budget_tokens": 6, "window_tokens": 3, "sink_tokens": 1}, 4),
        ({"budget_tokens": 3, "window_tokens": 30}, 3),
        ({"dilation": 4}, None),
    ],
)
def test_the_tightest_bound_says_what_stays(changes: dict[str, Any], expected: int | None) -> None:
    assert attention(**changes).resident_limit() == expected


def step_s(deployment: Deployment, contexts: list[int]) -> float:
    """A step of decodes alone."""
    count = len(contexts)
    shape = BatchShape(count, sum(contexts), count, (), 0, 0, tuple(contexts))
    return float(roofline_step_time(deployment).seconds(shape)[0])


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


def test_states_weigh_on_every_decode_also_beside_a_prompt() -> None:
    deployment = Deployment(model_of(STATE), A100, IDEAL, kernels=IDEAL_KERNELS)
    model = roofline_step_time(deployment)
    more = 4 * (STATE.state_size - 1)  # in four layers
    state_s = more * 2 * 2 / A100.memory_bytes_per_s  # two bytes, read and written

    def seconds(decodes: int, chunks: tuple[tuple[int, int], ...] = ()) -> float:
        return float(model.seconds(BatchShape(decodes, 100 * decodes, decodes, chunks))[0])

    without = roofline_step_time(replace(deployment, model=model_of(stateless())))
    for decodes, chunks in [(1, ()), (5, ()), (5, ((0, 64),))]:
        bare = float(without.seconds(BatchShape(decodes, 100 * decodes, decodes, chunks))[0])
        states_s = (decodes + len(chunks)) * state_s
        assert seconds(decodes, chunks) - bare == pytest.approx(states_s, rel=1e-6)


def test_states_of_a_cascade_are_shared_out_among_its_models() -> None:
    """Half of the tokens are of a model with states, half of one without."""
    both = Deployment(
        model_of(stateless()), A100, IDEAL, kernels=IDEAL_KERNELS,
        cascade=Cascade(model_of(STATE), 0.5),
    )  # fmt: skip
    bare = replace(both, cascade=Cascade(model_of(stateless()), 0.5))
    more_s = 4 * (STATE.state_size - 1) * 2 * 2 / A100.memory_bytes_per_s / 2
    for decodes in (1, 6):
        gained_s = step_s(both, [10] * decodes) - step_s(bare, [10] * decodes)
        assert gained_s == pytest.approx(decodes * more_s, rel=1e-6)
    beside = BatchShape(6, 60, 6, ((0, 8),))
    with_chunk = [float(roofline_step_time(d).seconds(beside)[0]) for d in (both, bare)]
    assert with_chunk[0] - with_chunk[1] == pytest.approx(7 * more_s, rel=1e-6)


def stateless() -> Recurrence:
    """The same weights with a state of one element."""
    return Recurrence(state_size=1, mixer_params=STATE.mixer_params)


def test_experts_of_a_step_depend_on_its_tokens_not_on_its_contexts() -> None:
    shape = model_of(FULL)
    sparse = shape.layers[0].model_copy(update={"ffn": Experts(experts=8, top_k=2, width=256)})
    model = shape.model_copy(update={"layers": (sparse,)})
    plain = Deployment(shape, A100, IDEAL, kernels=IDEAL_KERNELS)
    slopes = [
        step_s(replace(plain, model=m), [2000] * 3) - step_s(replace(plain, model=m), [1000] * 3)
        for m in (shape, model)
    ]
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-9)


def test_streamed_keys_of_a_prompt_cross_the_host_link() -> None:
    plain = Deployment(model_of(FULL), A100, IDEAL, kernels=IDEAL_KERNELS)
    offloaded = replace(plain, offload=Offload(resident_kv=0.5, prefetch=False))
    chunk = BatchShape(0, 0, 0, ((100, 28),))
    more_s = [float(roofline_step_time(d).seconds(chunk)[0]) for d in (plain, offloaded)]
    moved = 128 * plain.model.kv_elements_per_token() * 2 * 0.5
    assert more_s[1] - more_s[0] == pytest.approx(moved / 25e9, rel=1e-6)


def test_tensor_ranks_stream_their_shares_of_the_weights_at_once() -> None:
    alone = Deployment(model_of(FULL), A100, IDEAL, offload=Offload(resident_weights=0.0))
    shared = replace(alone, parallel=Parallel(tensor=2))
    assert step_s(alone, [10]) == pytest.approx(2 * step_s(shared, [10]), rel=1e-2)
    assert step_s(alone, [10]) == pytest.approx(alone.weight_bytes() / 25e9, rel=1e-2)


def test_scores_that_travel_cost_more_than_those_that_stay() -> None:
    group = model_of(attention(window_tokens=50)).layers[0]
    flash = Deployment(model_of(FULL), A100)
    plain = replace(flash, kernels=replace(flash.kernels, flash_attention=False))
    moved = [prefill_attention(d, group, 0, 100).moved_bytes for d in (flash, plain)]
    assert moved[1] - moved[0] == 4 * 2 * 8 * 100 * 100 * 4  # passes, bytes, heads, scores, layers


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


def run(
    config: Any, requests: list[Request], model: StepTime, noise: FloatArray, macro: bool
) -> Any:
    """One simulation under the eye of the law checker."""
    drawn = StepNoise(noise, np.random.default_rng(0))
    return simulate(requests, CheckedScheduler(config), model, noise=drawn, macro=macro)


@pytest.mark.parametrize("batching", SCHEDULERS)
@settings(max_examples=25)
@given(data=st.data(), requests=workloads())
def test_macro_steps_equal_single_steps_where_every_context_counts(
    batching: str, data: st.DataObject, requests: list[Request]
) -> None:
    config = data.draw(policies(batching))
    if not config.prefix_cache:
        config = replace(config, kv=data.draw(st.sampled_from([config.kv, "windowed"])))
        config = replace(config, kv_window_tokens=11)
    model = WHOLE_RUNS[data.draw(st.sampled_from(sorted(WHOLE_RUNS)))]
    noise = np.array(data.draw(st.sampled_from([[1.0], [0.9, 1.0, 1.3]])))
    single = run(config, requests, model, noise, macro=False)
    macro = run(config, requests, model, noise, macro=True)
    pd.testing.assert_frame_equal(single.requests, macro.requests, check_exact=True)
    assert single.extra["simulation"]["steps"] == macro.extra["simulation"]["steps"]
    assert single.pauses.equals(macro.pauses)
