"""States, experts, streams and scores, each in what a step takes."""

from dataclasses import replace

import pytest

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.layers import Experts, Recurrence
from servetwin.sim.step_times.roofline.deployment import IDEAL_KERNELS, Cascade, Deployment, Offload
from servetwin.sim.step_times.roofline.efficiency import IDEAL
from servetwin.sim.step_times.roofline.operators import prefill_attention
from servetwin.sim.step_times.roofline.parallel import Parallel
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from tests.support.small_models import A100, FULL, STATE, attention, model_of, step_s


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
