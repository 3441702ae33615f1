"""A streamed run has the rows of a run in memory, and its figures."""

from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.long_runs.sketched_summary import Sketch
from servetwin.sim.long_runs.streamed_run import open_loop
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.effort import examples
from tests.support.streamed_runs import (
    NOISY,
    WITHOUT_NOISE,
    clusters,
    configs,
    small_pieces,
    streamed,
    summary_of,
    traces,
    written,
)


def frame(files: dict[str, bytes], name: str) -> pd.DataFrame:
    return pd.read_parquet(BytesIO(files[f"{name}.parquet"]))


def in_order(frame: pd.DataFrame, *keys: str) -> pd.DataFrame:
    return frame.sort_values(list(keys), kind="stable", ignore_index=True)


def any_router() -> st.SearchStrategy[ClusterConfig]:
    router = st.sampled_from(["least-outstanding", "power-of-two"])
    loaded = st.builds(ClusterConfig, replicas=st.just(3), router=router)
    return st.one_of(st.just(ClusterConfig()), clusters, loaded)


@settings(max_examples=examples(50))
@given(traces(), configs(), any_router(), st.sampled_from([NOISY, WITHOUT_NOISE]), st.booleans())
def test_rows_are_those_of_a_run_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    requests: list[Request],
    config: PolicyConfig,
    cluster: ClusterConfig,
    profile: Profile,
    macro: bool,
) -> None:
    folder = tmp_path_factory.mktemp("run")
    scenario = Scenario(config, profile, cluster)
    whole = run_once(Trace(tuple(requests), "made"), open_loop(scenario), seed=3, macro=macro)
    with small_pieces():
        files = streamed(written(requests, folder), scenario, folder / "out", macro)
    pd.testing.assert_frame_equal(frame(files, "requests"), whole.requests)
    pd.testing.assert_frame_equal(
        frame(files, "steps"), in_order(whole.steps, "end_s", "replica"), check_exact=True
    )
    if len(whole.pauses):
        expected = in_order(whole.pauses, "row", "preempted_s")
        pd.testing.assert_frame_equal(frame(files, "pauses"), expected, check_exact=True)
    else:
        assert "pauses.parquet" not in files
    compare_figures(summary_of(files), whole.summary())


def compare_figures(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Counts and extremes are exact; of few values a sketch keeps each one."""
    assert found.keys() == expected.keys()
    for name in found.keys() - {"steady", "simulation", "provenance"}:
        ours, theirs = found[name], expected[name]
        if isinstance(ours, dict) and "p50" in ours:
            assert ours["count"] == theirs["count"]
            assert ours["max"] == theirs["max"]
            assert ours["mean"] == pytest.approx(theirs["mean"])
        else:
            assert ours == theirs, name


def test_percentiles_of_many_values_are_close() -> None:
    values = np.random.default_rng(0).lognormal(size=200_000)
    sketch = Sketch()
    for piece in np.array_split(values, 7):
        sketch.add(piece)
    described = sketch.describe()
    for percentile in (50, 90, 95, 99):
        exact = float(np.percentile(values, percentile))
        assert described[f"p{percentile}"] == pytest.approx(exact, rel=2e-3)
    assert described["count"] == len(values)
    assert described["max"] == values.max()
