"""CSV beside Parquet: the same columns and values."""

import csv
import json
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.records.run import load_run, requests_csv
from tests.support.command import SERVER, refused, servetwin
from tests.support.dialect_servers import kinds, running
from tests.support.paths import SAMPLE


def value_of(cell: str, kept: object) -> object:
    """The value of a cell, in the type that Parquet has; an empty one is undefined or empty."""
    if isinstance(kept, np.ndarray):
        return json.loads(cell)
    if isinstance(kept, bool | np.bool_):
        return {"True": True, "False": False}[cell]
    if isinstance(kept, float | int | np.number):
        return float(cell or "nan")
    return cell or None


def check(path: Path, kept: pd.DataFrame) -> None:
    """Every cell of the file has the value that Parquet has."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(kept)
    for row, (_, wanted) in zip(rows, kept.iterrows(), strict=True):
        assert list(row) == list(kept.columns)
        for name, value in wanted.items():
            found = value_of(row[str(name)], value)
            shown = list(value) if isinstance(value, np.ndarray) else value
            undefined = shown is None or shown == "" or shown != shown
            assert found in (None, "") or found != found if undefined else found == shown, name


def test_a_load_test_writes_both(tmp_path: Path) -> None:
    with running(kinds()["vllm"]) as url:
        done = servetwin(
            "loadtest", url, "--arrivals", "poisson", "--rate", 200, "--limit", 40,
            "--output-tokens", 4, "--cancel", "share=0.3,after=1tokens", "--csv",
            "--out", tmp_path / "run",
        )  # fmt: skip
    assert done.code in (0, 1), done.err
    check(tmp_path / "run" / "requests.csv", load_run(tmp_path / "run").requests)


def test_a_replay_writes_both(tmp_path: Path) -> None:
    done = servetwin(
        "replay", SAMPLE, *SERVER, "--limit", 30, "--replications", 0, "--csv",
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert done.code == 0, done.err
    check(tmp_path / "run" / "requests.csv", load_run(tmp_path / "run").requests)
    without = servetwin(
        "replay", SAMPLE, *SERVER, "--limit", 30, "--replications", 0, "--overwrite", "--out",
        tmp_path / "run",
    )  # fmt: skip
    assert without.code == 0, without.err
    assert not (tmp_path / "run" / "requests.csv").exists()


def test_a_replay_without_a_folder_has_no_place_for_it() -> None:
    assert "--csv: give --out, the folder for it" in refused("replay", SAMPLE, *SERVER, "--csv")


@given(st.lists(st.floats(allow_infinity=False), min_size=1, max_size=5), st.text(max_size=9))
def test_every_digit_and_every_sign_comes_back(values: list[float], name: str) -> None:
    frame = pd.DataFrame({"request_id": [f"r{name}"] * len(values), "e2e_s": values})
    rows = list(csv.DictReader(StringIO(requests_csv(frame).decode(), newline="")))
    assert {row["request_id"] for row in rows} == {f"r{name}"}
    found = [float(row["e2e_s"] or "nan") for row in rows]
    assert np.array_equal(found, values, equal_nan=True)
