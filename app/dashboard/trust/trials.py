"""Trials: predictions compared with load tests, of this dashboard's folder and a bundled one."""

from collections import defaultdict
from functools import cache
from pathlib import Path

import pandas as pd

from servetwin.app.reports.report_folders import NamedRun, Trial, find_runs
from servetwin.workloads.errors import ServetwinError

# Written by the demo on the bundled engine (the bundled sample, four load tests).
EXAMPLE = Path(__file__).parent / "example"
# Wrote it.
COMMAND = "servetwin demo"

# What a narrow window shows comes first.
ERROR_COLUMNS = ("metric", "verdict", "predicted", "measured", "error", "limit")


@cache
def bundled() -> tuple[list[NamedRun], list[Trial]]:
    """Return the runs of the bundled verification, and the trial that they are."""
    return find_runs(_folders(EXAMPLE))


def find_trials(root: Path) -> tuple[dict[str, Trial], list[str]]:
    """Return the trials among the runs under ``root``, then the bundled one, by name; and which
    folders could not be read, and why."""
    readable, problems = [], []
    for folder in _folders(root):
        try:
            find_runs([folder])
        except ServetwinError as error:
            if "neither a run folder" not in str(error):
                problems.append(str(error).replace(f"{root}/", ""))
        else:
            readable.append(folder)
    found = [*find_runs(readable)[1], *bundled()[1]]
    return {trial.name: trial for trial in found}, problems


def profile_of(root: Path, name: str) -> Path | None:
    """Return the profile that a verification wrote beside the runs of a trial, or None."""
    folders = [base / part for base in (root, EXAMPLE) for part in (name, Path(name).parent)]
    paths = [path for folder in folders if (path := folder / "profile.json").is_file()]
    return paths[0] if paths else None


def when_and_where(trial: Trial) -> str:
    """Return date and machine of the load tests, as far as they are kept.

    A recorded run was measured elsewhere: what it keeps of a machine is where it was imported.
    """
    texts, dates = [], defaultdict[str, list[str]](list)
    for named in trial.measured:
        meta, scenario = named.run.meta, named.run.scenario
        if tool := scenario.get("recorded_by"):
            texts.append(f"elsewhere: {scenario.get('trace')} ({tool})")
            continue
        machine = f"{meta.get('processor', 'unknown machine')}, {meta.get('cores', '?')} cores"
        dates[machine].append(str(meta.get("date", "at an unknown time")))
    texts += [f"{' to '.join(sorted({min(of), max(of)}))} on {on}" for on, of in dates.items()]
    return "; ".join(texts)


def requests_of(trial: Trial) -> pd.DataFrame:
    """Return the requests of all runs of a trial; ``run`` names the run."""
    frames = [
        named.run.requests.drop(columns="chunk_s", errors="ignore").assign(run=named.name)
        for named in (trial.predicted, *trial.measured)
    ]
    return pd.concat(frames, ignore_index=True)


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
