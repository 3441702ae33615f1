"""Fixtures of several pages: a folder of runs of every kind."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def filled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.support.dashboard_runs import fill_runs_folder

    folder = tmp_path_factory.mktemp("filled")
    fill_runs_folder(folder / "runs")
    return folder


@pytest.fixture
def root(filled_folder: Path, tmp_path: Path) -> Path:
    """A folder of runs that a test may change, with ``secret`` beside it."""
    shutil.copytree(filled_folder, tmp_path, symlinks=True, dirs_exist_ok=True)
    for name in ("link", "holds-link/inner"):
        link = tmp_path / "runs" / name
        link.unlink()
        link.symlink_to(tmp_path / "secret")
    return tmp_path / "runs"


@pytest.fixture
def few_replications(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages replicate four times instead of twenty."""
    monkeypatch.setattr("servetwin.app.dashboard.simulations.REPLICATIONS", 4)
