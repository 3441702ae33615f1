"""Results that sessions share: the newest, and no item is computed twice."""

from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")

from servetwin.app.dashboard.jobs.job import Job
from servetwin.app.dashboard.jobs.kept_results import KeptResults
from tests.app.dashboard.jobs.test_job import ended


def test_the_oldest_goes_first() -> None:
    kept = KeptResults(2)
    for key in "abc":
        kept.keep(key, key.upper())
    assert kept.of({0: "a", 4: "b", 7: "c"}) == {4: "B", 7: "C"}


def test_an_item_with_a_key_is_computed_once(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    keys = [f"{folder} once" for folder in folders]
    assert ended(Job(Path.mkdir, folders, keys=keys)).problem is None
    same = Job(Path.mkdir, folders, keys=keys)
    assert same.results.keys() == {0, 1}, "they are there before it begins"
    assert not same.is_running, "nothing is left to compute"
    again = Job(Path.mkdir, [*folders, tmp_path / "c"], keys=[*keys, f"{tmp_path} c"])
    assert ended(again).problem is None, "a folder that is made twice would be one"
    assert again.results.keys() == {0, 1, 2}
    assert "exists" in str(ended(Job(Path.mkdir, folders)).problem), "without keys all is computed"
