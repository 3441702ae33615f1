"""What simulated time rests on, and what happens to intervals where nobody measured."""

import json
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.text.provenance import outside_warning, rests_line
from policies.batch import BatchShape
from policies.config import PolicyConfig
from policies.registry import build_scheduler
from sim.core.recorder import STEP_COLUMNS
from sim.core.simulate import simulate
from sim.experiments.predict import Prediction, predict, predict_scenario, run_once, runs_over_seeds
from sim.experiments.scenario import ClusterConfig, Scenario, replicate
from sim.records.run import Run
from sim.step_times.extrapolation import ExtrapolatedStepTime, draw_extrapolation_factor
from sim.step_times.profile import Profile, StepTimeFit, load_profile
from sim.step_times.provenance import (
    Calibration,
    Excess,
    Formula,
    MeasuredRange,
    run_provenance,
    time_shares,
)
from sim.step_times.step_time import FEATURES, ROW_KNOTS, LinearStepTime, StepNoise, features
from tests.support.checked import request
from tests.support.command import refused, servetwin
from tests.support.paths import SAMPLE
from workloads.request import Request
from workloads.sample import sample_trace
from workloads.trace import Trace

MEASURED = load_profile("base-cpu")
COMPUTED = load_profile("llama-3-8b-h100")
LARGEST = MeasuredRange(
    decode_sequences=4, prefill_chunks=2, rows=64, decode_context_tokens=100, prefill_pairs=210
)
SPLIT = ClusterConfig(prefill_replicas=2, decode_replicas=1)
SMALL = Calibration("small", LARGEST)
MODEL = LinearStepTime([(2 + place) * 2.0**-20 for place in range(len(FEATURES))])


def frame(*rows: dict[str, float]) -> pd.DataFrame:
    """Rows of ``Run.steps``: one decode of one second, but for what they say."""
    plain = dict.fromkeys(STEP_COLUMNS, 0)
    table = [{**plain, "end_s": 1.0, "steps": 1, **row} for row in rows]
    return pd.DataFrame(table, columns=list(STEP_COLUMNS))


def decodes(count: int, context: int, steps: int = 1, **more: float) -> dict[str, float]:
    shape = {"decode_sequences": count, "rows": count, "decode_context_tokens": context}
    return {**shape, "steps": steps, **more}


def prefill(rows: int, chunks: int = 1, **more: float) -> dict[str, float]:
    """Equal chunks from the start of their prompts."""
    each = rows / chunks
    pairs = chunks * each * (each + 1) / 2
    return {"prefill_chunks": chunks, "rows": rows, "prefill_pairs": pairs, **more}


@pytest.mark.parametrize(
    ("row", "extrapolated"),
    [
        (decodes(4, 100), 0.0),
        (decodes(5, 100), 1.0),
        (decodes(4, 101), 1.0),
        (decodes(1, 91, 10), 0.0),  # ends at 100
        (decodes(1, 91, 20), 0.5),  # 91 .. 100, and 101 .. 110
        (decodes(4, 90, 4), 0.25),  # 90, 94, 98, 102
        (decodes(2, 200, 50), 1.0),
        (prefill(20), 0.0),  # 20 * 21 / 2 = 210 pairs
        (prefill(21), 1.0),
        (prefill(28, 2), 0.0),  # twice 14 * 15 / 2 = 105 pairs
        (prefill(29, 2), 1.0),
        (prefill(6, 3), 1.0),  # chunks
        ({**decodes(3, 9), "prefill_chunks": 1, "rows": 23}, 0.0),
    ],
)
def test_steps_are_interpolated_up_to_the_largest_measured(
    row: dict[str, float], extrapolated: float
) -> None:
    shares = time_shares(frame(row), SMALL)
    assert shares.get("extrapolated", 0.0) == pytest.approx(extrapolated)
    assert shares.get("interpolated", 0.0) == pytest.approx(1 - extrapolated)


@pytest.mark.parametrize(("pairs", "share"), [(210, 0.0), (211, 1.0)])
def test_a_chunk_deep_in_its_prompt_counts_with_all_its_pairs(pairs: int, share: float) -> None:
    steps = frame(prefill(2, prefill_pairs=pairs))
    assert time_shares(steps, SMALL).get("extrapolated", 0.0) == share


def test_shares_are_of_busy_time_and_a_formula_is_all_roofline() -> None:
    steps = frame(decodes(1, 10, end_s=3.0), decodes(9, 10, start_s=7.0, end_s=8.0))
    assert time_shares(steps, SMALL) == {"interpolated": 0.75, "extrapolated": 0.25}
    assert time_shares(steps, Formula()) == {"roofline": 1.0}
    assert time_shares(steps[:0], SMALL) == {}


def test_each_replica_rests_on_its_own_profile() -> None:
    steps = frame(decodes(5, 10), decodes(5, 10, replica=1), decodes(5, 10, replica=2))
    wide = Calibration("wide", MeasuredRange())
    rests = run_provenance(steps, [SMALL, wide, Formula()])
    assert rests.shares == pytest.approx(
        {"interpolated": 1 / 3, "extrapolated": 1 / 3, "roofline": 1 / 3}
    )
    assert rests.excesses == [Excess("small", "decode_sequences", 5, 4)]


def test_the_worst_excess_of_every_feature_is_told() -> None:
    steps = frame(
        decodes(2, 300, 11), decodes(2, 310), prefill(30), prefill(40, replica=1), decodes(3, 90)
    )
    assert run_provenance(steps, [SMALL, SMALL]).excesses == [
        Excess("small", "prefill_pairs", 820, 210),
        Excess("small", "decode_context_tokens", 320, 100),
    ]


rows = st.builds(
    decodes,
    st.integers(1, 6),
    st.integers(1, 200),
    st.integers(1, 40),
    start_s=st.floats(0, 10),
    end_s=st.floats(11, 1000),
    replica=st.integers(0, 1),
) | st.builds(prefill, st.integers(2, 300), st.integers(1, 3), replica=st.integers(0, 1))


@given(st.lists(rows, min_size=1, max_size=8))
def test_shares_sum_to_one(table: list[dict[str, float]]) -> None:
    shares = run_provenance(frame(*table), [SMALL, Formula()]).shares
    assert sum(shares.values()) == pytest.approx(1, abs=1e-12)
    assert all(0 < share <= 1 + 1e-12 for share in shares.values())


def test_runs_of_steps_have_the_shares_of_their_single_steps() -> None:
    model = LinearStepTime.of({"constant": 0.01})
    requests = [request(str(n), 0.02 * n, 30, 60) for n in range(9)]
    macro, single = (
        simulate(requests, build_scheduler(PolicyConfig()), model, macro=macro)
        for macro in (True, False)
    )
    assert len(macro.steps) < len(single.steps)
    shares = time_shares(macro.steps, SMALL)
    assert 0 < shares["interpolated"] < 1
    assert shares == pytest.approx(time_shares(single.steps, SMALL))


shapes = st.builds(
    BatchShape,
    st.integers(0, 30),
    st.integers(0, 400),
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 90), st.integers(2, 700)), max_size=4).map(tuple),
)


@given(st.lists(shapes, min_size=1, max_size=6))
def test_the_measured_range_is_the_largest_of_each_feature_of_the_fit(
    measured: list[BatchShape],
) -> None:
    table = np.array([features(shape) for shape in measured]).max(axis=0)
    largest = MeasuredRange.of(dict(zip(FEATURES, table.tolist(), strict=True)))
    assert largest.rows == max(shape.rows for shape in measured)
    assert largest.decode_sequences == max(shape.decode_sequences for shape in measured)
    assert largest.prefill_chunks == max(len(shape.prefill_chunks) for shape in measured)
    contexts = [sum(start for start, _ in shape.prefill_chunks) for shape in measured]
    assert largest.prefill_context_tokens == max(contexts)


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
    largest = replace(LARGEST, prefill_context_tokens=50, rows=100)
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
@settings(max_examples=25)
@given(workloads(), st.floats(0.2, 5.0), st.booleans())
def test_macro_steps_equal_single_steps_outside_the_range_too(
    batching: str, requests: list[Request], factor: float, noisy: bool
) -> None:
    config = PolicyConfig(batching=batching, kv_tokens=600, max_seqs=6, max_model_len=80)
    model = ExtrapolatedStepTime(MODEL, replace(LARGEST, decode_context_tokens=60.3), factor)

    def run(macro: bool) -> Run:
        noise = StepNoise(np.array([0.9, 1.3]), np.random.default_rng(0)) if noisy else None
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
    assert known.run.extra["provenance"] == {"shares": {"interpolated": 1.0}, "outside": []}
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
    """Where every draw is the same, nobody said how uncertain the fit is: nothing to widen."""
    fit = StepTimeFit(coefficients={"constant": 0.01, "decode_context_tokens": 1e-5})
    ranged = fit.model_copy(update={"ranges": {"decode_context_tokens": 5.0}})
    profile = MEASURED.model_copy(update={"layouts": {"paged": ranged}})
    found = predict_scenario(alone(50, 20), Scenario(PolicyConfig(), profile), replications=3)
    assert found.run.extra["provenance"]["shares"]["extrapolated"] > 0.5
    assert width(found) == 0


@pytest.mark.parametrize(
    ("cluster", "more", "shares"),
    [
        (ClusterConfig(replicas=2), (), {"interpolated"}),
        (ClusterConfig(replicas=2), (COMPUTED,), {"interpolated", "roofline"}),
        (SPLIT, (), {"interpolated"}),
        (SPLIT, (COMPUTED,), {"interpolated", "roofline"}),
    ],
)
def test_every_replica_of_a_scenario_has_its_source(
    cluster: ClusterConfig, more: tuple[Profile, ...], shares: set[str]
) -> None:
    scenario = Scenario(MEASURED.policy_config(), MEASURED, cluster, more)
    run = run_once(sample_trace(), scenario)
    assert set(run.extra["provenance"]["shares"]) == shares
    computed_s = sum(
        (rows["end_s"] - rows["start_s"]).sum()
        for replica, rows in run.steps.groupby("replica")
        if scenario.servers()[int(str(replica))] is COMPUTED
    )
    busy_s = (run.steps["end_s"] - run.steps["start_s"]).sum()
    roofline = run.extra["provenance"]["shares"].get("roofline", 0.0)
    assert roofline == pytest.approx(computed_s / busy_s)


FAR: dict[str, Any] = {
    "shares": {"interpolated": 0.931, "extrapolated": 0.069},
    "outside": [
        {
            "profile": "base-cpu",
            "feature": "decode_context_tokens",
            "value": 81_000.0,
            "measured": 12_400.0,
        }
    ],
}


def test_the_report_says_what_it_rests_on() -> None:
    line = "rests on   interpolated 93.1 %, extrapolated 6.9 % of simulated time"
    assert rests_line(FAR) == line
    assert rests_line({"shares": {}, "outside": []}) == "no step was run"


def test_the_warning_names_the_range() -> None:
    start = (
        "warning: 6.9 % of the simulated time lies outside what profile base-cpu measured "
        "(decode context up to 81,000 tokens; measured up to 12,400)"
    )
    assert outside_warning(FAR, widened=True) == f"{start}: intervals are widened there"
    assert outside_warning(FAR, widened=False) == f"{start}: nobody knows the error there"


@pytest.mark.parametrize(("share", "warns"), [(0.0, False), (0.001, False), (0.0011, True)])
def test_a_thousandth_of_the_time_is_worth_no_warning(share: float, warns: bool) -> None:
    found = {**FAR, "shares": {"extrapolated": share}}
    assert (outside_warning(found, widened=True) is not None) == warns


@pytest.mark.parametrize("feature", [field.name for field in fields(MeasuredRange)])
def test_every_feature_can_be_told(feature: str) -> None:
    several = [FAR["outside"][0], {**FAR["outside"][0], "feature": feature, "profile": "other"}]
    warning = outside_warning({**FAR, "outside": several}, widened=True) or ""
    assert "what profiles base-cpu, other measured" in warning
    assert "; also " in warning


def test_replay_reports_and_warns(tmp_path: Path) -> None:
    outside = ("--prompt-scale", 3, "--output-scale", 4, "--replications", 3)
    done = servetwin("replay", SAMPLE, *outside, "--out", tmp_path)
    (line,) = (line for line in done.out.splitlines() if line.startswith("rests on"))
    assert "extrapolated" in line
    (warning,) = (line for line in done.err.splitlines() if line.startswith("warning: "))
    assert "profile base-cpu measured (decode context up to " in warning
    assert warning.endswith("tokens; measured up to 2,040): intervals are widened there")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert sum(summary["provenance"]["shares"].values()) == pytest.approx(1)
    again = servetwin("replay", SAMPLE, *outside, "--json")
    assert json.loads(again.out)["provenance"] == summary["provenance"]
    assert warning in again.err


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "rests on   interpolated 100.0 % of simulated time"),
        (("--profile", "llama-3-8b-h100"), "rests on   roofline 100.0 % of simulated time"),
    ],
)
def test_replay_warns_of_nothing_where_nothing_is_outside(
    options: tuple[str, ...], line: str
) -> None:
    done = servetwin("replay", SAMPLE, "--replications", 0, *options)
    assert line in done.out.splitlines()
    assert "warning" not in done.err


def test_compare_tells_of_both_sides() -> None:
    compared = ("--prompt-scale", 3, "--output-scale", 4, "--replications", 2)
    sides = ("--compare", "static+contiguous", "continuous+paged")
    done = servetwin("replay", SAMPLE, *compared, *sides)
    for side in "AB":
        assert f"\n{side} rests on   " in done.out
        assert f"{side}: warning: " in done.err
    found = json.loads(servetwin("replay", SAMPLE, *compared, *sides, "--json").out)
    assert found["a"]["provenance"]["shares"]["extrapolated"] > 0.001


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"decode_contexts": 5}, "unknown features"),
        ({"decode_sequences": -1}, "decode_sequences: the largest value measured cannot be -1"),
    ],
)
def test_impossible_ranges_are_named(
    tmp_path: Path, ranges: dict[str, float], message: str
) -> None:
    raw = MEASURED.model_dump(by_alias=True)
    raw["layouts"]["paged"]["ranges"] = ranges
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(raw))
    line = refused("replay", SAMPLE, "--profile", path)
    assert "layouts.paged.ranges" in line
    assert message in line
