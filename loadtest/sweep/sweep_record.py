"""The file of a sweep, beside the run folders of its levels; it is whole after every level."""

import json
from dataclasses import dataclass
from pathlib import Path

from servetwin.loadtest.sweep.sweep import Sweep
from servetwin.sim.records.run import RunError, save_files

SWEEP = "sweep.json"


@dataclass(frozen=True, slots=True)
class KeptSweep:
    """A sweep that can be saved."""

    sweep: Sweep

    def save(self, folder: Path) -> None:
        """Write ``sweep.json``; raises ``NotSaved`` as ``Run.save`` does."""
        record = json.dumps(self.sweep.as_dict(), indent=1).encode()
        save_files(folder, lambda: [(SWEEP, record)])


def is_sweep(folder: Path) -> bool:
    """Return whether a folder holds a sweep."""
    return (folder / SWEEP).is_file()


def load_sweep(folder: Path) -> Sweep:
    """Read the sweep of a folder; raises ``RunError`` where it is missing or damaged."""
    path = folder / SWEEP
    try:
        return Sweep.of_dict(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: not a readable sweep ({error})") from error
