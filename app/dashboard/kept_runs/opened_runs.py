"""Runs of the folder, read again only when they have changed."""

from pathlib import Path

import streamlit as st

from servetwin.app.dashboard.kept_runs.folder import child, last_change_s
from servetwin.app.reports.report_folders import NamedRun, Trial, find_runs

Found = tuple[list[NamedRun], list[Trial]]


def opened(root: Path, names: tuple[str, ...]) -> Found:
    """Return the runs in children of ``root``, and the trials among them.

    Raises ``RunError`` naming a folder that is no run, is damaged, or leads elsewhere.
    """
    folders = [child(root, name) for name in names]
    return _opened(tuple(map(str, folders)), max(map(last_change_s, folders)))


@st.cache_resource(max_entries=16, show_spinner=False)
def _opened(folders: tuple[str, ...], changed_s: float) -> Found:
    return find_runs([Path(folder) for folder in folders])
