from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from servetwin.sim.step_times.tables.measurements import MOST_FALL, points, require_rising
from servetwin.workloads.errors import ProfileError
from tests.support.paths import SHARED

TABLE = Path("some.csv")
DEEPEST = 0.06
"""The deepest fall of the parts of a step, in layer times of vLLM on two devices."""


@pytest.mark.parametrize(
    ("times_ms", "refused"),
    [
        ([1.0, 2.0, 3.0], False),
        ([3.0, 3.0, 3.0], False),
        ([1.0, 2.0, 1.61], False),
        ([1.0, 2.0, 1.59], True),
        ([2.0, 1.8, 1.59], True),
        ([2.0, 0.5, 4.0], True),
    ],
    ids=["rises", "level", "a small dip", "a fall", "a slow fall", "a hole"],
)
def test_a_time_may_dip_but_not_fall(times_ms: list[float], refused: bool) -> None:
    places = np.array([1.0, 2.0, 4.0])
    times_s = np.array(times_ms) / 1e3
    if not refused:
        require_rising(TABLE, "time", times_s, rows=places)
        return
    with pytest.raises(ProfileError, match=r"^some.csv: column 'time': 2 ms at rows"):
        require_rising(TABLE, "time", times_s, rows=places)


@pytest.mark.parametrize("axis", ["rows", "start"])
def test_a_surface_rises_along_either_axis(axis: str) -> None:
    rows, start = (grid.ravel() for grid in np.meshgrid([1.0, 2.0], [0.0, 8.0]))
    times_s = np.array([0.004, 0.005, 0.006, 0.007])
    require_rising(TABLE, "time", times_s, rows=rows, start=start)
    times_s[(rows == 2) & (start == 0) if axis == "rows" else (rows == 1) & (start == 8)] = 0.003
    other = "start 0" if axis == "rows" else "rows 1"
    said = rf"4 ms at {axis} ., but 3 ms at {axis} . \({other}\); a time may fall by at most 20%"
    with pytest.raises(ProfileError, match=said):
        require_rising(TABLE, "time", times_s, rows=rows, start=start)


def test_points_that_share_no_place_are_not_compared() -> None:
    places = {"rows": np.array([1.0, 2.0]), "start": np.array([0.0, 8.0])}
    require_rising(TABLE, "time", np.array([0.004, 0.001]), **places)  # Does not raise.
    with pytest.raises(ProfileError):
        require_rising(TABLE, "time", np.array([0.004, 0.001]), rows=places["rows"])


@pytest.mark.parametrize("device", ["rtx4090", "rtxpro6000"])
def test_measured_layer_times_fall_far_less(device: str) -> None:
    folder = SHARED / "gpu" / f"{device}-llama-3.1-8b" / "layers" / "tp1"
    if not folder.exists():
        pytest.skip("the recorded layer times are not here")
    dense = pd.read_csv(folder / "dense.csv").query("layer not in ('embedding', 'final_layernorm')")
    attention = pd.read_csv(folder / "attention.csv.gz")
    rows, layer_s = points(dense.groupby("tokens")["time_us"].sum() * 1e-6, _index(dense, "tokens"))
    require_rising(TABLE, "dense", layer_s, tokens=rows)
    assert _fall(pd.Series(layer_s)) < DEEPEST
    for size, context, other in (
        ("prefill_chunk", "kv_prefill", "n_decode"),
        ("n_decode", "kv_decode", "prefill_chunk"),
    ):
        part = attention[attention[other] == 0]
        found = points(part["time_us"] * 1e-6, part[size], part[context])
        require_rising(TABLE, "time_us", found[2], **{size: found[0], context: found[1]})
        for _, line in pd.DataFrame(dict(zip("xys", found, strict=True))).groupby("x"):
            assert _fall(line["s"]) < DEEPEST
    assert DEEPEST < MOST_FALL / 2


def _fall(times_s: pd.Series) -> float:
    return float((1 - times_s / times_s.cummax()).max())


def _index(frame: pd.DataFrame, column: str) -> pd.Series:
    places = sorted(frame[column].unique())
    return pd.Series(places, index=places, dtype=float)
