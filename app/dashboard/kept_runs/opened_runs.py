"""Runs of the folder, read again only when they have changed, with their facts and figures."""

from pathlib import Path

import pandas as pd
import streamlit as st

from servetwin.app.dashboard.kept_runs.folder import child, last_change_s
from servetwin.app.reports.html.tables import POINTS
from servetwin.app.reports.report_folders import NamedRun, Trial, find_runs
from servetwin.app.reports.run_words import outside_warning, provenance_line, what_ran
from servetwin.app.reports.tables import counts_line, described, error_lines
from servetwin.app.words import METRICS
from servetwin.sim.records.run import Run
from servetwin.sim.records.steady_part import describe_steady

Found = tuple[list[NamedRun], list[Trial]]


def opened(root: Path, names: tuple[str, ...]) -> Found:
    """Return the runs in children of ``root``, and the trials among them.

    Raises ``RunError`` naming a folder that is no run, is damaged, or leads elsewhere.
    """
    folders = [child(root, name) for name in names]
    return _opened(tuple(map(str, folders)), max(map(last_change_s, folders)))


def facts(run: Run) -> list[str]:
    """Return lines on what ran, how it ended, its provenance or delivered load, and when."""
    summary = run.summary()
    lines = [what_ran(run), counts_line(summary["requests"])]
    lines += error_lines(run.requests["error"].dropna())
    if provenance := summary.get("provenance"):
        lines.append(provenance_line(provenance))
        if warning := outside_warning(provenance, widened=False):
            lines.append(warning)
    if delivered := summary.get("delivered"):
        lines.append(f"load: {delivered.get('verdict', 'unknown')}")
    lines.append(describe_steady(summary["steady"]))
    version = run.meta.get("servetwin", "unknown")
    made_by = "an unknown version of servetwin" if version == "unknown" else f"servetwin {version}"
    lines.append(f"{made_by}, {run.meta.get('date', 'no date')}")
    return lines


def latency_frame(run: Run) -> pd.DataFrame:
    """Return a row per metric of single requests and part of the run, in units of ``METRICS``."""
    parts = described(run)
    shown = {
        name: metric.fitting(
            of[name][point] for of in parts.values() if name in of for point in POINTS
        )
        for name, metric in METRICS.items()
    }
    return pd.DataFrame(
        {
            "metric": metric.title,
            "part": part,
            "count": latencies[name]["count"],
            **{point: metric.scaled(latencies[name][point]) for point in POINTS},
        }
        for name, metric in shown.items()
        for part, latencies in parts.items()
        if name in latencies
    )


@st.cache_resource(max_entries=16, show_spinner=False)
def _opened(folders: tuple[str, ...], changed_s: float) -> Found:
    return find_runs([Path(folder) for folder in folders])
