"""What simulated time rests on: measured, interpolated, extrapolated or computed."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.recorder import STEP_COLUMNS
from servetwin.sim.core.simulate import simulate
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.step_times.profile import Profile, load_profile
from servetwin.sim.step_times.provenance import (
    Calibration,
    Excess,
    MeasuredRange,
    Provenance,
    Source,
    run_provenance,
)
from servetwin.sim.step_times.step_time import FEATURES, LinearStepTime, features
from servetwin.workloads.reading import sample_trace
from tests.support.checked import request
from tests.support.paths import SHEET_PROFILE

MEASURED = load_profile("base-cpu")
COMPUTED = load_profile(SHEET_PROFILE)
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


def time_shares(steps: pd.DataFrame, source: Source) -> dict[Provenance, float]:
    return run_provenance(steps, [source] * 3).shares


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
    assert time_shares(steps, Source()) == {"roofline": 1.0}
    assert time_shares(steps[:0], SMALL) == {}


def test_each_replica_rests_on_its_own_profile() -> None:
    steps = frame(decodes(5, 10), decodes(5, 10, replica=1), decodes(5, 10, replica=2))
    wide = Calibration("wide", MeasuredRange())
    rests = run_provenance(steps, [SMALL, wide, Source()])
    assert rests.shares == pytest.approx(
        {"interpolated": 1 / 3, "extrapolated": 1 / 3, "roofline": 1 / 3}
    )
    assert rests.outside == [Excess("small", "decode_sequences", 5, 4)]


def test_the_time_of_each_origin_is_counted_and_what_lies_beyond_its_range() -> None:
    steps = frame(
        decodes(4, 10, end_s=3.0), decodes(5, 10, replica=1), decodes(5, 10, replica=2, end_s=4.0)
    )
    others = Calibration("others", LARGEST, origin="measured by others")
    rests = run_provenance(steps, [SMALL, others, Source()])
    assert rests.origins == pytest.approx(
        {"measured here": 3 / 8, "measured by others": 1 / 8, "computed from data sheets": 4 / 8}
    )
    assert rests.extrapolated == pytest.approx({"measured by others": 1 / 8})


def test_a_profile_without_a_range_keeps_its_origin() -> None:
    fit = MEASURED.step_time("paged").model_copy(update={"ranges": {}})
    profile = MEASURED.model_copy(update={"layouts": {"paged": fit}})
    rests = run_provenance(frame(decodes(1, 10)), [profile.source("paged")])
    assert (rests.shares, rests.origins) == ({"roofline": 1.0}, {"measured here": 1.0})


def test_the_worst_excess_of_every_feature_is_told() -> None:
    steps = frame(
        decodes(2, 300, 11), decodes(2, 310), prefill(30), prefill(40, replica=1), decodes(3, 90)
    )
    assert run_provenance(steps, [SMALL, SMALL]).outside == [
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
    rests = run_provenance(frame(*table), [SMALL, Source()])
    shares = rests.shares
    assert sum(shares.values()) == pytest.approx(1, abs=1e-12)
    assert all(0 < share <= 1 + 1e-12 for share in shares.values())
    assert sum(rests.origins.values()) == pytest.approx(1, abs=1e-12)
    assert sum(rests.extrapolated.values()) == pytest.approx(shares.get("extrapolated", 0.0))


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
