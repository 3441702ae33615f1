"""A forecast is written, read back, and refused when it was changed."""

import json
from pathlib import Path

import pytest

from servetwin.app.verdict.forecast import Forecast, make_forecast, read_forecast
from servetwin.sim.experiments.capacity import saturation_rate_per_s
from servetwin.sim.records.run import RunError, write_files
from servetwin.workloads.transform import at_rate
from tests.support.fake_calibrator import PROFILE, TRACE


@pytest.fixture(scope="module")
def forecast() -> Forecast:
    return make_forecast(TRACE, PROFILE, (0.5, 0.9), replications=5, seed=3)


@pytest.fixture
def folder(forecast: Forecast, tmp_path: Path) -> Path:
    assert not write_files(tmp_path, forecast.files(tmp_path))
    return tmp_path


def test_loads_are_shares_of_the_predicted_capacity(forecast: Forecast) -> None:
    capacity = forecast.capacity_per_s
    assert capacity.low <= capacity.value <= capacity.high
    fitted = saturation_rate_per_s(TRACE, PROFILE.policy_config(), PROFILE)
    assert capacity.value == pytest.approx(fitted, rel=0.05)
    for level, share in zip(forecast.levels, (0.5, 0.9), strict=True):
        assert level.trace.rate_per_s == pytest.approx(share * capacity.value)
        ttft = level.intervals["ttft_s.mean"]
        assert ttft.low <= ttft.value <= ttft.high
    waits = [level.intervals["ttft_s.mean"].value for level in forecast.levels]
    assert waits[0] < waits[1]


def test_what_is_read_is_what_was_written(forecast: Forecast, folder: Path) -> None:
    found = read_forecast(folder, TRACE)
    assert (found.profile, found.capacity_per_s) == (forecast.profile, forecast.capacity_per_s)
    assert found.seed == 3
    for ours, theirs in zip(forecast.levels, found.levels, strict=True):
        assert ours.trace == theirs.trace
        assert ours.intervals == theirs.intervals
    again = dict(found.files(folder))
    assert again["forecast.json"] == (folder / "forecast.json").read_bytes()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("profile.json", "profile.json: not the file of the forecast"),
        ("at-50/predicted/requests.parquet", "requests.parquet: not the file of the forecast"),
        ("forecast.json", "not a readable forecast"),
    ],
)
def test_a_file_that_was_changed_is_named(folder: Path, name: str, message: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes() + b"x")
    with pytest.raises(RunError, match=message):
        read_forecast(folder, TRACE)


@pytest.mark.parametrize("name", ["profile.json", "forecast.json"])
def test_a_file_that_is_missing_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(RunError, match=f"not a readable forecast .*{name}"):
        read_forecast(folder, TRACE)


def test_a_figure_that_was_changed_does_not_match_the_digest(folder: Path) -> None:
    record = json.loads((folder / "forecast.json").read_text())
    record["levels"][0]["metrics"]["ttft_s.mean"]["value"] *= 1.01
    (folder / "forecast.json").write_text(json.dumps(record))
    with pytest.raises(RunError, match="the digest does not match: the forecast was changed"):
        read_forecast(folder, TRACE)


def test_a_forecast_is_for_one_trace(folder: Path) -> None:
    with pytest.raises(RunError, match="the forecast was made for another trace"):
        read_forecast(folder, at_rate(TRACE.replaced(list(TRACE)[:-1], "shorter"), 1.0))
