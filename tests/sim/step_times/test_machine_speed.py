"""Steps measured on a machine whose speed wanders, fitted in reference beats."""

import math
from dataclasses import replace

import numpy as np
import pytest

from servetwin.policies.batch import BatchShape
from servetwin.policies.step_record import StepRecord, timed_steps
from servetwin.sim.step_times.fit import StepSample, fit_step_time, in_beats
from servetwin.sim.step_times.machine_speed import FEWEST_BEATS, WINDOW_S, MachineSpeed, slowdown
from servetwin.sim.step_times.step_time import LinearStepTime

TRUE = LinearStepTime.of({"constant": 1e-3, "decode_sequences": 2e-4, "rows_from_0": 5e-5})


def step(number: int, now_s: float, beat_s: float = 0.0, **more: float | bool) -> StepRecord:
    record = StepRecord(number, now_s, 0.005, False, [("a", 9, 1, 0)], [], [], 0, 1, 0)
    return replace(record, beat_s=beat_s, **more)  # type: ignore[arg-type]


def test_beats_and_lost_time_are_no_part_of_a_step() -> None:
    steps = [
        step(0, 1.0),
        step(1, 1.010, beat_s=0.002, lost_s=0.001),
        step(2, 1.020),
        step(3, 1.500, idle_before=True),
    ]
    timed = {record.step: took_s for record, took_s, _ in timed_steps(steps)}
    assert timed == pytest.approx({0: 0.007, 1: 0.010}), "step 2 ended in sleep"


def test_the_speed_at_a_moment_is_the_mean_beat_around_it() -> None:
    moments_s = np.arange(0.0, 10.0, 0.1)
    steps = [step(n, at, 0.002 if at < 5.05 else 0.004) for n, at in enumerate(moments_s)]
    speed = MachineSpeed.of(steps)
    assert speed.moments_s[:2] == pytest.approx([0.005, 0.105]), "when the step before had ended"
    beats_s = speed.beats_around(np.array([2.0, 5.0, 8.0, 10.0 + WINDOW_S + 0.1]))
    assert beats_s[[0, 2]] == pytest.approx([0.002, 0.004])
    assert 0.0025 < beats_s[1] < 0.0035
    assert math.isnan(beats_s[3]), f"fewer than {FEWEST_BEATS} beats"
    assert not len(MachineSpeed.of([step(0, 0.0), step(1, 0.1)]).beats_s)


def samples(rng: np.random.Generator, wander: float) -> list[StepSample]:
    """Steps of many shapes on a machine whose speed follows a slow wave."""
    rows = []
    for number in range(600):
        decodes, chunk = int(rng.integers(1, 30)), int(rng.integers(2, 400))
        chunks = ((0, chunk),) if number % 3 == 0 else ()
        shape = BatchShape(decodes, decodes * int(rng.integers(5, 300)), decodes, chunks)
        beats = np.array([1 + wander * math.sin(number / 40)])
        slow = float(slowdown(beats, np.array([bool(chunks)]))[0])
        seconds = float(TRUE.seconds(shape)[0]) * slow * float(rng.uniform(0.99, 1.01))
        beat_s = 0.002 * float(beats[0])
        rows.append(StepSample(shape, seconds, number // 300, number // 10, beat_s=beat_s))
    return rows


def test_a_wandering_speed_leaves_the_fit_alone() -> None:
    rng = np.random.default_rng(3)
    timed, beat_s = in_beats(samples(rng, 0.4))
    assert beat_s is not None
    fit = fit_step_time(timed)
    model = LinearStepTime(fit.coefficients)
    assert fit.noise.mean() == pytest.approx(1.0)
    for shape in (
        BatchShape(4, 400, 4),
        BatchShape(20, 2_000, 20),
        BatchShape(2, 99, 2, ((0, 300),)),
    ):
        beats, has_chunks = np.array([beat_s / 0.002]), np.array([bool(shape.prefill_chunks)])
        true_s = float(TRUE.seconds(shape)[0] * slowdown(beats, has_chunks)[0])
        assert float(model.seconds(shape)[0]) == pytest.approx(true_s, rel=0.01)
    raw = fit_step_time([replace(one, beat_s=math.nan) for one in samples(rng, 0.4)])
    assert np.ptp(raw.noise) > 10 * np.ptp(fit.noise)


def test_steps_without_beats_are_left_out_or_all_kept() -> None:
    rows = samples(np.random.default_rng(1), 0.1)
    without = [replace(one, beat_s=math.nan) for one in rows]
    assert in_beats(without) == (without, None)
    timed, _ = in_beats([*without[:100], *rows[100:]])
    assert len(timed) == 500


def test_what_a_lost_core_costs_is_no_part_of_the_model() -> None:
    """Every step costs 2 ms more for each time that it lost its core."""
    rng = np.random.default_rng(2)
    plain = samples(rng, 0.0)
    lost = rng.poisson([one.seconds / 0.01 for one in plain]).tolist()
    disturbed = [
        replace(one, seconds=one.seconds + 2e-3 * times, switches=times)
        for one, times in zip(plain, lost, strict=True)
    ]
    true, fit = fit_step_time(plain), fit_step_time(disturbed)
    blind = fit_step_time([replace(one, switches=0) for one in disturbed])
    assert len(fit.coefficients) == len(true.coefficients) == fit.draws.shape[1]
    shape = BatchShape(8, 800, 8)
    true_s, fit_s, blind_s = (
        float(LinearStepTime(one.coefficients).seconds(shape)[0]) for one in (true, fit, blind)
    )
    assert fit_s == pytest.approx(true_s, rel=0.01)
    assert blind_s > 1.05 * true_s


def test_the_loads_of_a_calibration_set_the_totals_of_both_kinds() -> None:
    rows = samples(np.random.default_rng(2), 0.1)
    slower = {False: 1.06, True: 0.97}
    loads = [
        replace(one, in_load=True, seconds=one.seconds * slower[bool(one.shape.prefill_chunks)])
        for one in rows[:150]
    ]
    timed, _ = in_beats([*loads, *rows[150:]])
    fit = fit_step_time(timed)
    model = LinearStepTime(fit.coefficients)
    for has_chunks in (False, True):
        steps = [s for s in timed if s.in_load and bool(s.shape.prefill_chunks) == has_chunks]
        stated_s = sum(float(model.seconds(one.shape)[0]) for one in steps)
        assert stated_s == pytest.approx(sum(one.seconds for one in steps), rel=1e-9)
