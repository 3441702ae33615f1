"""Clocks of runs: a closed form piece by piece ends where single steps do."""

from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.batch import Batch, BatchShape, ScheduledSequence
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.policies.lockstep import Lockstep
from servetwin.sim.core.run_clock import PassClock, PiecewiseClock, SampledClock, run_clock
from servetwin.sim.step_times.extrapolation import ExtrapolatedStepTime
from servetwin.sim.step_times.piecewise import Piece, PiecewiseStepTime
from servetwin.sim.step_times.protocol import FloatArray
from servetwin.sim.step_times.provenance import MeasuredRange
from servetwin.sim.step_times.step_time import (
    FEATURES,
    UNIT_BITS,
    LinearStepTime,
    NoiseSample,
    StepNoise,
    StepTime,
)
from tests.support.drafted_runs import DEPLOYMENTS, verifying
from tests.support.scheduler_steps import sequence

BATCH = Batch((), Lockstep(1))


class Pieces(PiecewiseStepTime):
    """Given pieces, the last of them for ever."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces

    def piece(self, shape: BatchShape, step: int = 0) -> Piece:
        for first, slope, steps in self.pieces[:-1]:
            if step < steps:
                return Piece(first + slope * step, slope, steps - step)
            step -= steps
        first, slope, _ = self.pieces[-1]
        return Piece(first + slope * step, slope, 1 << 40)


PIECES = st.lists(
    st.builds(Piece, st.integers(1, 10**9), st.integers(0, 10**6), st.integers(1, 20)),
    min_size=1,
    max_size=4,
)


@given(PIECES, st.integers(1, 60), st.floats(0, 1))
def test_pieces_end_where_single_steps_do(pieces: list[Piece], steps: int, share: float) -> None:
    model = Pieces(pieces)
    clock, sampled = run_clock(model, None), SampledClock(model, None)
    assert isinstance(clock, PiecewiseClock)
    whole = clock.begin(BATCH, None, steps, 0)
    assert whole == sampled.begin(BATCH, None, steps, 0)
    at = max(1, int(share * whole))
    assert clock.boundary(at) == sampled.boundary(at)


@given(
    first=st.integers(1, 10**12),
    slope=st.integers(-3, 10**9),
    steps=st.integers(1, 400),
    share=st.floats(0, 1),
)
def test_affine_steps_end_where_single_steps_do(
    first: int, slope: int, steps: int, share: float
) -> None:
    slope = max(slope, -(first // steps))
    durations = [first + slope * step for step in range(steps)]
    model = Pieces([Piece(first, slope, steps)])
    clock = run_clock(model, None)
    whole = clock.begin(BATCH, None, steps, 0)
    assert whole == sum(durations) << UNIT_BITS
    ticks = max(1, int(share * whole))
    ends = list(accumulate(durations))
    place = next(at for at, end in enumerate(ends) if end << UNIT_BITS >= ticks)
    assert clock.boundary(ticks) == (place + 1, ends[place] << UNIT_BITS)


@given(st.integers(1, 40), st.sampled_from([0.0, 0.6]))
def test_a_sampled_step_lasts_alone_as_long_as_in_a_run(steps: int, correlation: float) -> None:
    sample = NoiseSample(np.array([0.7, 1.0, 1.9]), correlation)
    run, alone = (
        SampledClock(Growing(), StepNoise(sample, np.random.default_rng(3))) for _ in range(2)
    )
    group = Lockstep(1)
    group.join(sequence("a", 5, 99))
    ends, elapsed = [], 0
    whole = run.begin(Batch((), group), None, steps, 7)
    for step in range(steps):
        elapsed += alone.begin(Batch((), group), None, 1, 7 + step)
        ends.append(elapsed)
        group.advance(1)
    assert whole == ends[-1]
    assert [run.boundary(end) for end in ends] == list(enumerate(ends, 1))


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 90)), max_size=3), st.integers(0, 9))
def test_a_single_step_lasts_the_same_from_its_sums_and_from_its_shape(
    prompts: list[tuple[int, int]], swapped: int
) -> None:
    linear = LinearStepTime([(2 + place) * 2.0**-20 for place in range(len(FEATURES))], swap_s=1e-3)
    model = ExtrapolatedStepTime(linear, MeasuredRange(0, 1, 30, 40.0, 100, 20, 900), 1.7)
    group = Lockstep(1)
    group.join(sequence("a", 50, 99))
    batch = Batch((), group)
    batch.swapped_tokens = swapped
    for number, (computed, tokens) in enumerate(prompts):
        seq = sequence(str(number), computed + tokens)
        seq.base_computed_tokens = computed
        batch.add_chunk(seq, tokens)
    totals = batch.totals() if prompts else None
    took = SampledClock(model, None).begin(batch, totals, 1, 0)
    shaped = SampledClock(OnlySeconds(model), None)
    assert took == shaped.begin(batch, totals, 1, 0)


def test_a_run_of_hours_is_exact() -> None:
    """Its units have more than 62 bits together."""
    model = OnlySeconds(LinearStepTime.of({"constant": 2.0**14}))
    group = Lockstep(1)
    group.join(sequence("a", 5, 99))
    clock = SampledClock(model, None)
    step = SampledClock(model, None).begin(Batch((), group), None, 1, 0)
    assert clock.begin(Batch((), group), None, 40, 0) == 40 * step
    assert clock.boundary(39 * step) == (39, 39 * step)


@pytest.mark.parametrize("prompt", [0, 9])
@pytest.mark.parametrize("swapped", [0, 7])
@pytest.mark.parametrize("drafted", [False, True])
def test_an_affine_step_lasts_as_long_as_its_shape_says(
    prompt: int, swapped: int, drafted: bool
) -> None:
    """Whatever it moves, verifies or computes beside its decodes."""
    model = LinearStepTime([(2 + place) * 2.0**-20 for place in range(len(FEATURES))], swap_s=1e-3)
    group = DraftedDecodes(3) if drafted else Lockstep(1)
    group.join(sequence("a", 50, 99))
    batch = Batch((), group)
    batch.swapped_tokens = swapped
    if prompt:
        batch.add_chunk(sequence("b", prompt), prompt)
    totals = batch.totals() if prompt else None
    took = run_clock(model, None).begin(batch, totals, 1, 0)
    assert took == SampledClock(OnlySeconds(model), None).begin(batch, totals, 1, 0)


def test_sums_of_noise_go_on_exactly_beyond_64_bits() -> None:
    factors = [1 << 16, 1 << 17]
    sample = NoiseSample(np.array([1.0, 2.0]))
    noise = StepNoise(sample, np.random.default_rng(5))
    noise.draw(0, 1)
    far = 1 << 32
    noise._first, noise._sums, noise._weighted_sums = far, [1 << 61], [(1 << 63) - 1]
    offset, sums, weighted = noise.draw(far, 200)
    steps = range(offset, offset + 200)
    drawn = [after - before for before, after in pairwise(sums[:201])]
    assert set(drawn) == set(factors)
    expected = accumulate((f * s for f, s in zip(drawn, steps, strict=True)), initial=(1 << 63) - 1)
    assert weighted[:201] == list(expected)


class OnlySeconds:
    """A model that knows shapes of batches and not their sums."""

    def __init__(self, model: StepTime) -> None:
        self._model = model

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        return self._model.seconds(shape, steps + 1)[:steps]


class Growing:
    """Steps of no closed form, each longer than the one before."""

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        context = shape.decode_context_tokens + np.arange(steps)
        return np.asarray(0.01 + 1e-4 * np.sqrt(context))


@pytest.mark.parametrize("name", DEPLOYMENTS)
@given(
    members=st.lists(
        st.tuples(st.integers(1, 300), st.lists(st.integers(0, 3), min_size=40, max_size=40)),
        min_size=1,
        max_size=5,
    ),
    prompts=st.lists(st.tuples(st.integers(0, 90), st.integers(1, 90)), max_size=2),
    steps=st.integers(1, 40),
    share=st.floats(0, 1),
)
def test_a_run_of_passes_lasts_as_long_as_the_shape_of_each(
    name: str,
    members: list[tuple[int, list[int]]],
    prompts: list[tuple[int, int]],
    steps: int,
    share: float,
) -> None:
    """Wherever drafts come from, whatever the target sees; beside prompts one pass runs."""
    model, group = verifying(name), DraftedDecodes(3)
    for computed, emitted in members:
        seq = sequence("a", prompt=computed, output=1 + 3 * 40)
        seq.base_computed_tokens, seq.base_generated_tokens = computed, 1
        group.join(seq)
        group.set_schedule(seq, np.cumsum([0, *emitted, *[3] * 40]))
    seq, steps = sequence("b", 200), 1 if prompts else steps
    batch = Batch([ScheduledSequence(seq, start, rows, True) for start, rows in prompts], group)
    clock, by_shape = run_clock(model, None, drafts=True), run_clock(model, None)
    assert isinstance(clock, PassClock)
    whole = clock.begin(batch, None, steps, 0)
    at = max(1, int(share * whole))
    cut, ends = clock.boundary(at), [0]
    for _ in range(steps):
        ends.append(ends[-1] + by_shape.begin(batch, batch.totals(), 1, 0))
        group.advance(1)
    assert ends[-1] == whole
    assert cut == next((k, end) for k, end in enumerate(ends) if end >= at)
