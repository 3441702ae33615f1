"""The fit finds coefficients that made the data, shrugs at disturbed steps, and keeps the noise."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.fit import StepSample, fit_line, fit_step_time, noise_quantiles
from servetwin.sim.step_times.profile import Profile, StepTimeFit, load_profile, shipped_profiles
from servetwin.sim.step_times.step_time import (
    FEATURES,
    LinearStepTime,
    NoiseSample,
    StepNoise,
    features,
)
from servetwin.workloads.errors import ProfileError
from tests.support.call_counts import calls_of

TRUTH = LinearStepTime.of(
    {
        "constant": 4e-3,
        "decode_sequences": 3e-4,
        "prefill_chunks": 2e-4,
        "rows_from_8": 2e-4,
        "rows_from_32": 3e-4,
        "rows_from_64": 4e-4,
        "rows_from_128": 4e-4,
        "decode_context_tokens": 8e-7,
        "prefill_pairs": 3e-8,
        "prefill_context_tokens": 1e-6,
    }
)


def shapes(rng: np.random.Generator) -> Iterator[BatchShape]:
    for _ in range(1500):
        decodes = int(rng.integers(0, 17))
        context = decodes * int(rng.integers(10, 600))
        chunk = (int(rng.integers(0, 300)), int(rng.integers(2, 250)))
        chunks = (chunk,) if not decodes or rng.random() < 0.3 else ()
        yield BatchShape(decodes, context, decodes, chunks)


def measured(rng: np.random.Generator, truth: LinearStepTime = TRUTH) -> list[StepSample]:
    """The truth, with 2 % of noise, and one step in fifty ten times as long; bursts of 20."""
    samples = []
    for number, shape in enumerate(shapes(rng)):
        factor = 1 + 0.02 * rng.standard_normal()
        factor *= 10 if rng.random() < 0.02 else 1
        seconds = float(truth.seconds(shape)[0]) * factor
        samples.append(StepSample(shape, seconds, burst=number // 20))
    return samples


def test_fit_predicts_unseen_shapes_within_one_percent_despite_disturbed_steps() -> None:
    rng = np.random.default_rng(1)
    fit = fit_step_time(measured(rng))
    model = LinearStepTime(tuple(fit.coefficients.tolist()))
    errors = [
        float(model.seconds(shape)[0] / TRUTH.seconds(shape)[0]) - 1
        for shape in shapes(np.random.default_rng(2))
    ]
    assert np.abs(errors).mean() < 0.01
    assert (fit.coefficients >= 0).all()
    assert 0.01 < fit.held_out_error < 0.03
    assert fit.noise.mean() == pytest.approx(1.18, abs=0.06), "pauses are time that passes"


def test_batches_that_cost_more_than_their_parts_are_found_and_no_others() -> None:
    """An engine with one masked attention over the whole batch, predicted at twice the batch."""
    dense = LinearStepTime([*TRUTH.coefficients[:-1], 4e-7], TRUTH.knots)
    large = [BatchShape(32, 32 * context, 32) for context in (300, 600, 900)]
    for truth in (TRUTH, dense):
        fit = fit_step_time(measured(np.random.default_rng(4), truth))
        found, expected = fit.coefficients[-1], truth.coefficients[-1]
        assert found == pytest.approx(expected, rel=0.1)
        assert (fit.draws[:, -1] > 0).all() == (expected > 0)
        assert fit.ranges["batch_pairs"] > 0
        model = LinearStepTime(fit.coefficients.tolist())
        for shape in large:
            assert model.seconds(shape)[0] == pytest.approx(truth.seconds(shape)[0], rel=0.05)


def test_pauses_of_small_steps_do_not_stretch_large_ones() -> None:
    """A pause of 10 ms in every second step: double the small steps, a tenth of the large ones."""
    rng, samples = np.random.default_rng(3), list[StepSample]()
    for shape in [*shapes(rng), *(BatchShape(1, 20, 1) for _ in range(3000))]:
        pause_s = 0.010 if rng.random() < 0.5 else 0.0
        samples.append(StepSample(shape, float(TRUTH.seconds(shape)[0]) + pause_s))
    fit = fit_step_time(samples)
    fitted_s = np.array([features(s.shape) for s in samples]) @ fit.coefficients
    drawn = StepNoise(NoiseSample(fit.noise), rng).factors(0, len(samples))
    total_s = sum(sample.seconds for sample in samples)
    assert float(fitted_s @ drawn) == pytest.approx(total_s, rel=0.02)


@given(
    st.lists(st.tuples(st.floats(0.1, 10.0), st.floats(1e-3, 1.0)), min_size=1, max_size=40),
    st.floats(0.1, 10.0),
)
def test_noise_keeps_the_total_time_whatever_the_unit(
    steps: list[tuple[float, float]], unit: float
) -> None:
    ratios, fitted_s = np.array(steps).T
    noise = noise_quantiles(ratios, fitted_s)
    assert noise.mean() * fitted_s.sum() == pytest.approx(float(ratios @ fitted_s))
    assert noise == pytest.approx(noise_quantiles(ratios, unit * fitted_s))
    assert (np.diff(noise) >= 0).all()


def test_what_a_burst_shares_is_not_taken_for_knowledge() -> None:
    """Whole bursts are drawn again: 30 steps that were slow together say as much as one."""
    rng = np.random.default_rng(5)
    steps = measured(rng)
    factors = np.exp(0.1 * rng.standard_normal(len(steps) // 30))
    disturbed = [
        replace(one, seconds=one.seconds * factors[number // 30], burst=number // 30)
        for number, one in enumerate(steps)
    ]
    typical = np.mean([features(one.shape) for one in steps], axis=0)
    together = fit_step_time(disturbed).draws @ typical
    alone = fit_step_time([replace(one, burst=0) for one in disturbed]).draws @ typical
    assert together.std() > 3 * alone.std()
    assert together.std() / together.mean() == pytest.approx(0.1 * np.sqrt(np.pi / 2 / 50), rel=0.5)


def test_drawn_models_are_never_negative_and_spread_around_the_fit() -> None:
    fit = StepTimeFit.of(fit_step_time(measured(np.random.default_rng(3))))
    rng = np.random.default_rng(0)
    drawn = np.array([fit.drawn(rng).coefficients for _ in range(200)])
    assert (drawn >= 0).all()
    shape = BatchShape(8, 1600, 8, ())
    seconds = drawn @ np.array(features(shape))
    assert seconds.mean() == pytest.approx(float(fit.model().seconds(shape)[0]), rel=0.02)
    assert 0 < seconds.std() < 0.05 * seconds.mean()


def test_steps_are_an_arithmetic_series_in_the_growing_context() -> None:
    shape = BatchShape(3, 100, 2, ())
    later = BatchShape(3, 100 + 2 * 4, 2, ())
    assert TRUTH.seconds(shape, 5)[4] == pytest.approx(TRUTH.seconds(later)[0], rel=1e-12)


def test_noise_of_a_step_does_not_depend_on_how_steps_are_grouped() -> None:
    sample = np.linspace(0.5, 2, 50)
    one, other = (StepNoise(NoiseSample(sample), np.random.default_rng(7)) for _ in range(2))
    singles = np.concatenate([one.factors(i, 1) for i in range(9000)])
    assert singles.tolist() == other.factors(0, 9000).tolist()


def test_noise_is_drawn_in_small_parts_first_and_is_the_same() -> None:
    sample = np.linspace(0.5, 2, 50)
    noise = StepNoise(NoiseSample(sample), np.random.default_rng(7))
    at_once = np.random.default_rng(7).choice(np.rint(sample * 2**16), 9000) / 2**16
    assert noise.factors(0, 9000).tolist() == at_once.tolist()
    few = calls_of(lambda: StepNoise(NoiseSample(sample), np.random.default_rng(7)).factors(0, 10))
    assert few["<genexpr>"] < 100


@pytest.mark.parametrize("correlation", [0.3, 0.8])
def test_correlated_noise_has_the_same_factors_and_remembers(correlation: float) -> None:
    factors = np.exp(0.2 * np.random.default_rng(0).standard_normal(200))
    noise = StepNoise(NoiseSample(factors, correlation), np.random.default_rng(1))
    drawn = noise.factors(0, 60_000)
    for point in (5, 50, 95):
        assert np.percentile(drawn, point) == pytest.approx(np.percentile(factors, point), rel=0.03)
    logs = np.log(drawn)
    assert np.corrcoef(logs[:-1], logs[1:])[0, 1] == pytest.approx(correlation, abs=0.03)
    again = StepNoise(NoiseSample(factors, correlation), np.random.default_rng(1))
    parts = [again.factors(first, 4_000) for first in range(0, 12_000, 4_000)]
    assert np.concatenate(parts).tolist() == drawn[:12_000].tolist(), "across chunks"


@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_the_fit_finds_the_correlation_of_neighbouring_steps(correlation: float) -> None:
    rng = np.random.default_rng(2)
    steps = list(shapes(rng))
    noise = StepNoise(NoiseSample(np.exp(0.1 * rng.standard_normal(500)), correlation), rng)
    factors = noise.factors(0, len(steps))
    samples = [
        StepSample(shape, float(TRUTH.seconds(shape)[0]) * factor, burst=number // 100)
        for number, (shape, factor) in enumerate(zip(steps, factors.tolist(), strict=True))
    ]
    fit = fit_step_time(samples)
    assert fit.noise_correlation == pytest.approx(correlation, abs=0.08)
    sample = StepTimeFit.of(fit).noise_factors()
    assert sample.correlation == pytest.approx(fit.noise_correlation, rel=1e-5)


def test_rows_fall_into_segments_that_sum_to_the_rows() -> None:
    for rows in (1, 4, 9, 300, 5000):
        values = dict(zip(FEATURES, features(BatchShape(rows, rows, rows, ())), strict=True))
        assert sum(v for name, v in values.items() if name.startswith("rows_from")) == rows


def test_a_line_through_disturbed_points() -> None:
    points = [(n, 0.001 + 2e-5 * n) for n in range(1, 17)] * 3 + [(4, 0.5), (9, 0.7)]
    constant, slope = fit_line(points)
    assert constant == pytest.approx(0.001, rel=0.02)
    assert slope == pytest.approx(2e-5, rel=0.05)


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(ProfileError, match="3 measured steps are too few"):
        fit_step_time(measured(np.random.default_rng(0))[:3])


def profile() -> Profile:
    return Profile(
        name="test",
        origin="computed from data sheets",
        machine={},
        engine={},
        policies={"kv_tokens": 64},
        layouts={"paged": StepTimeFit(coefficients={"constant": 1.0})},
    )


def test_a_profile_reads_back_and_knows_its_limits(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    profile().save(path)
    back = load_profile(str(path))
    assert back == profile()
    assert back.policy_config().kv_tokens == 64
    with pytest.raises(ProfileError, match="contiguous KV memory was not measured, only paged"):
        back.step_time("contiguous")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('"origin": "computed from data sheets"', '"origin": "guessed"'), "field 'origin'"),
        (('"name": "test"', '"name": "test", "nmae": 1'), "field 'nmae'"),
        (('"constant": 1.0', '"constant": "much"'), "field 'layouts.paged.coefficients.constant'"),
    ],
)
def test_a_damaged_profile_names_its_field(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    path = tmp_path / "p.json"
    profile().save(path)
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(ProfileError, match=message):
        load_profile(str(path))


def test_unknown_profiles_name_the_nearest(tmp_path: Path) -> None:
    for name in shipped_profiles():
        with pytest.raises(ProfileError, match=f"did you mean {name!r}"):
            load_profile(name + "x")
    with pytest.raises(ProfileError, match="cannot be read"):
        load_profile(str(tmp_path / "none.json"))
