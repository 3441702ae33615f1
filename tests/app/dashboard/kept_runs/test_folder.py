"""The folder of runs: what is found in it, and what may not be done."""

import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")

from servetwin.app.dashboard.kept_runs import folder as runs_folder
from servetwin.app.dashboard.kept_runs.folder import (
    child,
    delete,
    kept_runs,
    new_child,
    zip_problem,
    zipped,
)
from servetwin.app.dashboard.kept_runs.opened_runs import opened
from servetwin.sim.records.run import RunError
from tests.support.figure_frames import load_test


def test_kept_runs_are_found_where_they_are(tmp_path: Path) -> None:
    for name in ("a", "v/policy/predicted", "v/policy/measured-1"):
        load_test(3).save(tmp_path / name)
    (tmp_path / "notes").mkdir()
    assert sorted(kept_runs(tmp_path)) == ["a", "v/policy/measured-1", "v/policy/predicted"]
    assert kept_runs(tmp_path / "nowhere") == []


BAD_NAMES = ["", ".", "..", "../secret", "a/b", "/etc", "./mine", "mine/", "no-such", "link"]


DOINGS: dict[str, Callable[[Path, str], Any]] = {
    "child": child, "delete": delete, "zip": zipped, "size": zip_problem,
    "open": lambda root, name: opened(root, (name,)),
}  # fmt: skip


@pytest.mark.parametrize("doing", DOINGS)
def test_nothing_outside_the_folder_is_touched(root: Path, doing: str) -> None:
    for name in BAD_NAMES:
        with pytest.raises(RunError):
            DOINGS[doing](root, name)
        assert (root.parent / "secret" / "key").read_text() == "private", name
        assert (root / "mine" / "summary.json").exists(), name


@given(st.text(max_size=12))
def test_no_name_leads_out(name: str) -> None:
    root = Path("/no/such/root")
    with pytest.raises((RunError, ValueError)):
        child(root, name)
    try:
        path = new_child(root, name)
    except RunError:
        return
    assert path.parent == root
    assert path.resolve().parent == root.resolve()


def test_a_run_that_holds_a_link_is_not_read_but_can_be_deleted(root: Path) -> None:
    for doing in ("child", "zip", "open"):
        with pytest.raises(RunError, match="holds a link"):
            DOINGS[doing](root, "holds-link")
    delete(root, "holds-link")
    assert not (root / "holds-link").exists()
    assert (root.parent / "secret" / "key").exists()


def test_a_zip_holds_the_folder_and_is_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(BytesIO(zipped(root, "mine"))) as archive:
        names = archive.namelist()
        assert archive.read("mine/scenario.yaml") == (root / "mine/scenario.yaml").read_bytes()
    assert set(names) == {f"mine/{file.name}" for file in (root / "mine").iterdir()}
    monkeypatch.setattr(runs_folder, "MOST_ZIP_BYTES", 100)
    assert "too much for a download" in (zip_problem(root, "mine") or "")
    with pytest.raises(RunError, match="too much for a download"):
        zipped(root, "mine")
