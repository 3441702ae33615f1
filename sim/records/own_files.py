"""Find the files of runs: all that are in a folder, or by their names where no list was kept."""

import json
import os
from pathlib import Path

from servetwin.sim.records.run_folder import JOURNAL

CLAIM = ".servetwin-run.json"
"""The claim file of a folder (``sim.records.run_claim``), which lists the files of its run."""

RUN_FILES = frozenset({
    "requests.parquet", "meta.json", "scenario.yaml", "steps.parquet", "pauses.parquet",
    "handovers.parquet", "summary.json", "trace.jsonl", "server_metrics.parquet", "forecast.json",
    "predicted-requests.parquet", "profile.json", "verdict.json", "why.json", JOURNAL,
    "sweep.json",
})  # fmt: skip
"""Names of what runs, verifications and sweeps write."""

_MARKS = {
    "meta.json": "kind",
    "forecast.json": "schema",
    "verdict.json": "outcome",
    "sweep.json": "sweep",
}
"""Files that tell what a folder has, and a key of theirs."""


def files_in(folder: Path) -> frozenset[str]:
    """Return the files in a folder and below, as paths in it.

    Its own claim file is left out, and so are folders with a claim of their own.
    """
    found: set[str] = set()
    for place, folders, names in os.walk(folder):
        at = Path(place)
        folders[:] = [name for name in folders if not (at / name / CLAIM).exists()]
        links = [name for name in folders if (at / name).is_symlink()]
        found.update(str((at / name).relative_to(folder)) for name in (*names, *links))
    return frozenset(found - {CLAIM})


def is_run(folder: Path) -> bool:
    """Return whether a folder has a run, a verification or a sweep, itself."""
    return any(has_key(folder / name, key) for name, key in _MARKS.items())


def named_as_runs(folder: Path) -> frozenset[str]:
    """Return what a run has written, by the names: in the folder itself and in runs below it."""
    files = frozenset(name for name in files_in(folder) if Path(name).name in RUN_FILES)
    places = {Path(name).parent for name in files}
    ours = {place for place in places if place == Path() or is_run(folder / place)}
    return frozenset(name for name in files if Path(name).parent in ours)


def has_key(path: Path, key: str) -> bool:
    """Return whether a file is a JSON object with a key."""
    try:
        found = json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and key in found
