"""Profiles: files that are wrong are named with the field that is."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servetwin.sim.step_times.profile import load_profile
from servetwin.sim.step_times.step_time import FEATURES
from tests.support.command import refused
from tests.support.paths import SAMPLE


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
    raw = load_profile("base-cpu").model_dump(by_alias=True)
    raw["layouts"]["paged"]["ranges"] = ranges
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(raw))
    line = refused("replay", SAMPLE, "--profile", path)
    assert "layouts.paged.ranges" in line
    assert message in line


def broken(tmp_path: Path, fit: Mapping[str, Any], api: Mapping[str, Any]) -> Path:
    raw = load_profile("base-cpu").model_dump(by_alias=True)
    raw["layouts"]["paged"] |= fit
    raw["api"] |= api
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(raw))
    return path


WIDTH = len(FEATURES)


@pytest.mark.parametrize(
    ("fit", "api", "message"),
    [
        ({"coefficients": {"constant": -0.01}}, {}, "paged': coefficients.constant: -0.01 s is "),
        ({"draws": [[0.01] * (WIDTH - 2)]}, {}, f"draws.0: {WIDTH - 2} values, not {WIDTH}"),
        ({"draws": [[0.01] * WIDTH, [-0.01] * WIDTH]}, {}, "draws: a negative value"),
        ({"coefficients": {"constant": 1e300}}, {}, "less than or equal to 1000000"),
        ({"ranges": {"constant": 1e300}}, {}, "less than or equal to 1000000000000000000"),
        ({"drift": 1e308}, {}, "paged.drift': Input should be less than or equal to 1000000"),
        ({}, {"chunk_s": 1e300}, "'api.chunk_s': Input should be less than or equal to 1000000"),
        ({"noise": []}, {}, "noise and drift: at least one factor, and none negative"),
        ({"noise": [1.0, -0.1]}, {}, "noise and drift: at least one factor, and none negative"),
        ({"drift": -0.1}, {}, "noise and drift: at least one factor, and none negative"),
        ({}, {"chunk_s": -1.0}, "'api.chunk_s': Input should be greater than or equal to 0"),
    ],
)  # fmt: skip
def test_what_no_engine_can_have_is_refused_with_its_key(
    tmp_path: Path, fit: dict[str, Any], api: dict[str, Any], message: str
) -> None:
    line = refused("replay", SAMPLE, "--profile", broken(tmp_path, fit, api))
    assert message in line


def test_a_profile_from_before_the_last_feature_draws_without_it() -> None:
    fit = load_profile("base-cpu").layouts["paged"]
    assert "batch_pairs" not in fit.coefficients
    assert {len(draw) for draw in fit.draws} == {WIDTH - 1}
    assert fit.model().coefficients[-1] == fit.drawn(np.random.default_rng(0)).coefficients[-1] == 0
    assert fit.drawn(np.random.default_rng(0)).scaled(2.0).coefficients[-1] == 0


def test_a_scaled_profile_is_another_engine_with_the_same_uncertainty() -> None:
    fit = load_profile("base-cpu").layouts["paged"]
    slow = load_profile("base-cpu").scaled(1.25).layouts["paged"]
    for name, value in fit.coefficients.items():
        assert slow.coefficients[name] == pytest.approx(1.25 * value)
    assert slow.draws[3] == pytest.approx([1.25 * value for value in fit.draws[3]])
    assert (slow.noise, slow.drift, slow.ranges) == (fit.noise, fit.drift, fit.ranges)
