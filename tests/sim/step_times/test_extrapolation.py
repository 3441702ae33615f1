"""Step times and intervals outside the measured range."""

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.experiments.predict import Prediction, predict, runs_over_seeds
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario, replicate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.extrapolation import ExtrapolatedStepTime, draw_extrapolation_factor
from servetwin.sim.step_times.profile import Profile, StepTimeFit, load_profile
from servetwin.sim.step_times.provenance import Calibration, MeasuredRange
from servetwin.sim.step_times.step_time import (
    FEATURES,
    ROW_KNOTS,
    LinearStepTime,
    NoiseSample,
    StepNoise,
    features,
)
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.checked import request
from tests.support.effort import examples
from tests.support.paths import SHEET_PROFILE

pytestmark = pytest.mark.slow

MEASURED = load_profile("base-cpu")
COMPUTED = load_profile(SHEET_PROFILE)
LARGEST = MeasuredRange(
    decode_sequences=4, prefill_chunks=2, rows=64, decode_context_tokens=100, prefill_pairs=210
)
SPLIT = ClusterConfig(prefill_replicas=2, decode_replicas=1)
SMALL = Calibration("small", LARGEST)
MODEL = LinearStepTime([(2 + place) * 2.0**-20 for place in range(len(FEATURES))])


shapes = st.builds(
    BatchShape,
    st.integers(0, 30),
    st.integers(0, 400),
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 90), st.integers(2, 700)), max_size=4).map(tuple),
)


@given(shapes, st.floats(0.2, 5.0))
def test_a_single_step_lasts_as_the_first_of_two_to_the_last_bit(
    shape: BatchShape, factor: float
) -> None:
    for largest in (LARGEST, replace(LARGEST, decode_context_tokens=10**6, batch_pairs=9_000)):
        model = ExtrapolatedStepTime(MODEL, largest, factor)
        assert model.seconds(shape, 1)[0] == model.seconds(shape, 2)[0]


def cut(shape: BatchShape, largest: MeasuredRange) -> np.ndarray:
    """The features of a shape, each no larger than was measured."""
    of = dict(zip(FEATURES, features(shape), strict=True))
    for name in (field.name for field in fields(largest) if field.name != "rows"):
        of[name] = min(of[name], getattr(largest, name))
    ends = pairwise((*ROW_KNOTS, float("inf")))
    for start, end in ends:
        of[f"rows_from_{start}"] = max(0.0, min(shape.rows, largest.rows, end) - start)
    return np.array([of[name] for name in FEATURES])


@given(shapes, st.floats(0.2, 5.0), st.integers(1, 30))
def test_what_lies_beyond_the_measured_costs_the_factor(
    shape: BatchShape, factor: float, steps: int
) -> None:
    shape = shape._replace(decode_growing=shape.decode_sequences)
    largest = replace(LARGEST, prefill_context_tokens=50, rows=100, batch_pairs=9_000)
    seconds = ExtrapolatedStepTime(MODEL, largest, factor).seconds(shape, steps)
    for step in (0, steps - 1):
        grown = shape.decode_context_tokens + step * shape.decode_growing
        then = shape._replace(decode_context_tokens=grown)
        inside_s = float(cut(then, largest) @ MODEL.coefficients)
        whole_s = float(np.dot(features(then), MODEL.coefficients))
        expected_s = inside_s + factor * (whole_s - inside_s)
        assert seconds[step] == pytest.approx(expected_s, rel=1e-9)


@given(shapes, st.integers(1, 30))
def test_nothing_changes_inside_the_range_to_the_last_bit(shape: BatchShape, steps: int) -> None:
    widened = ExtrapolatedStepTime(MODEL, MeasuredRange(30, 4, 3000, 2000, 10**9, 1000), 3.0)
    assert widened.seconds(shape, steps).tolist() == MODEL.seconds(shape, steps).tolist()


@st.composite
def workloads(draw: st.DrawFn) -> list[Request]:
    gaps_s = draw(st.lists(st.sampled_from([0.0, 0.003, 0.05, 0.4]), min_size=1, max_size=12))
    return [
        request(str(n), float(at), draw(st.integers(1, 40)), draw(st.integers(1, 40)))
        for n, at in enumerate(np.cumsum(gaps_s))
    ]


@pytest.mark.parametrize("batching", ["continuous", "chunked", "static", "prefill-first"])
@settings(max_examples=examples(25))
@given(workloads(), st.floats(0.2, 5.0), st.booleans())
def test_macro_steps_equal_single_steps_outside_the_range_too(
    batching: str, requests: list[Request], factor: float, noisy: bool
) -> None:
    config = PolicyConfig(batching=batching, kv_tokens=600, max_seqs=6, max_model_len=80)
    model = ExtrapolatedStepTime(MODEL, replace(LARGEST, decode_context_tokens=60.3), factor)

    def run(macro: bool) -> Run:
        noise = (
            StepNoise(NoiseSample(np.array([0.9, 1.3])), np.random.default_rng(0))
            if noisy
            else None
        )
        return simulate(requests, build_scheduler(config), model, noise=noise, macro=macro)

    macro, single = run(True), run(False)
    pd.testing.assert_frame_equal(macro.requests, single.requests, check_exact=True)


def test_the_factor_has_median_one_and_the_stated_spread() -> None:
    rng = np.random.default_rng(3)
    logs = np.log([draw_extrapolation_factor(rng) for _ in range(4000)])
    assert abs(logs.mean()) < 3 * 0.5 / 4000**0.5
    assert abs(logs.std() - 0.5) < 3 * 0.5 / 8000**0.5


def without_ranges(profile: Profile) -> Profile:
    layouts = {k: fit.model_copy(update={"ranges": {}}) for k, fit in profile.layouts.items()}
    return profile.model_copy(update={"layouts": layouts})


def alone(prompt: int, output: int) -> Trace:
    """Ten requests, each alone on its server."""
    return Trace(tuple(request(str(n), 100.0 * n, prompt, output) for n in range(10)), "made up")


def both(trace: Trace) -> tuple[Prediction, Prediction]:
    """Predictions by a profile as it is, and by one that knows nothing of its range."""
    config = replace(MEASURED.policy_config(), max_model_len=32_768)
    profiles = MEASURED, without_ranges(MEASURED)
    first, second = (predict(trace, config, p, seed=4, replications=8) for p in profiles)
    return first, second


def width(prediction: Prediction) -> float:
    interval = prediction.interval("tpot_s.mean")
    assert interval is not None
    return (interval.high - interval.low) / interval.value


def test_intervals_inside_the_range_stay_as_they_are_to_the_last_bit() -> None:
    known, unknown = both(sample_trace())
    assert known.run.extra["provenance"] == {
        "origins": {"measured here": 1.0},
        "extrapolated": {},
        "shares": {"interpolated": 1.0},
        "outside": [],
    }
    assert unknown.run.extra["provenance"]["shares"] == {"roofline": 1.0}
    for metric in ("ttft_s.p90", "tpot_s.mean", "e2e_s.p99", "output_throughput_tokens_per_s"):
        assert known.interval(metric) == unknown.interval(metric)


def test_intervals_outside_are_wider_the_farther_they_lie() -> None:
    found = [both(alone(prompt, 20)) for prompt in (1_000, 3_000, 6_000, 12_000)]
    widths = [width(known) for known, _ in found]
    assert widths[0] == width(found[0][1]), "inside"
    assert widths == sorted(widths)
    assert len(set(widths)) == 4
    for known, unknown in found[1:]:
        assert width(known) > 2 * width(unknown)
        assert known.run.requests.equals(unknown.run.requests), "the estimate itself stays"


def test_widening_draws_from_a_stream_of_its_own() -> None:
    scenario = Scenario(MEASURED.policy_config(), MEASURED)
    runs = [
        replicate(
            alone(50, 20), scenario, np.random.SeedSequence(5), draw=True, extrapolate=extrapolate
        )
        for extrapolate in (False, True)
    ]
    for column in ("first_token_s", "last_token_s"):
        before, after = (run.requests[column].to_numpy() for run in runs)
        assert after == pytest.approx(before, rel=1e-12), "inside: the same fit, drift and noise"


def test_policies_are_compared_with_the_same_factors() -> None:
    """Alone on a server, neither policy makes a difference: nor may the draws."""
    config = replace(MEASURED.policy_config(), max_model_len=32_768)
    configs = config, replace(config, batching="prefill-first")
    sides = [
        runs_over_seeds(alone(6_000, 20), Scenario(c, MEASURED), seed=2, replications=3)
        for c in configs
    ]
    for one, other in zip(*sides, strict=True):
        assert "extrapolated" in one.extra["provenance"]["shares"]
        assert one.requests.equals(other.requests)


def test_a_certain_profile_stays_certain() -> None:
    """Where every draw is the same, the fit has no uncertainty that could be widened."""
    fit = StepTimeFit(coefficients={"constant": 0.01, "decode_context_tokens": 1e-5})
    ranged = fit.model_copy(update={"ranges": {"decode_context_tokens": 5.0}})
    profile = MEASURED.model_copy(update={"layouts": {"paged": ranged}})
    found = predict(alone(50, 20), PolicyConfig(), profile, replications=3)
    assert found.run.extra["provenance"]["shares"]["extrapolated"] > 0.5
    assert width(found) == 0
