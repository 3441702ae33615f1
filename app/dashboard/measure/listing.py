"""The list of the folder of runs; a folder that is no run is listed with the reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from servetwin.app.dashboard.kept_runs.folder import child, files_in
from servetwin.app.reports.claims import metric_name
from servetwin.app.reports.report_folders import VERDICT, is_run
from servetwin.app.reports.run_words import what_ran_short
from servetwin.app.words import METRICS
from servetwin.sim.records.metrics import figure
from servetwin.sim.records.run import MAPPINGS, RunError, RunKind, require_saved
from servetwin.workloads.files import mapping_in

_FIGURES = ("ttft_s.p90", "tpot_s.p90", "output_throughput_tokens_per_s")


@dataclass(frozen=True, slots=True)
class ListedFolder:
    """A child of the folder: one run, a folder of runs, or a ``problem`` why it is neither."""

    name: str
    row: Mapping[str, Any]
    problem: str = ""


def listed_runs(root: Path) -> list[ListedFolder]:
    """Return the children of ``root``, newest first."""
    if not root.is_dir():
        return []
    children = [entry for entry in root.iterdir() if entry.is_dir() or entry.is_symlink()]
    children.sort(key=lambda entry: (-entry.lstat().st_mtime, entry.name))
    return [_listed(root, entry.name) for entry in children]


def runs_table(runs: Sequence[ListedFolder]) -> pd.DataFrame:
    """Return a row per run or folder of runs; a figure has one unit for all."""
    table = pd.DataFrame([{"name": run.name, **run.row} for run in runs])
    for path in _FIGURES:
        if path in table:
            values = table[path].astype(float)
            metric = METRICS[path.partition(".")[0]].fitting(values)
            table[path] = values * metric.factor
            name = f"{metric_name(path)}, {metric.unit}".replace("throughput, tokens", "tokens")
            table = table.rename(columns={path: name})
    return table


def _listed(root: Path, name: str) -> ListedFolder:
    try:
        folder = child(root, name)
        return ListedFolder(name, _run_row(folder) if is_run(folder) else _group_row(folder))
    except (RunError, OSError) as error:
        return ListedFolder(name, {}, str(error))


def _run_row(folder: Path) -> dict[str, Any]:
    require_saved(folder)
    try:
        meta, summary, scenario = (mapping_in(folder / name) for name in MAPPINGS)
        kind = meta["kind"]
        if kind not in get_args(RunKind):
            raise RunError(f"{folder.name}: a run of kind {kind!r}; a newer servetwin wrote it")
        return {  # what a narrow window shows comes first
            "kind": what_ran_short(kind, scenario),
            **{path: figure(summary, path) for path in _FIGURES},
            "date": str(meta.get("date", "")).rpartition(":")[0] or None,
            "requests": summary["requests"]["total"],
            "trace": scenario.get("trace"),
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"{folder.name}: not a readable run folder ({reason})") from error


def _group_row(folder: Path) -> dict[str, Any]:
    count = sum(file.name == "summary.json" for file in files_in(folder))
    if not count:
        raise RunError(f"{folder.name}: neither a run nor a folder of runs")
    runs = "1 run" if count == 1 else f"{count} runs"
    is_verified = (folder / VERDICT).exists()
    return {"kind": f"verification, {runs}" if is_verified else f"folder of {runs}"}
