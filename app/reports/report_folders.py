"""From folders to the runs of a report, and which of them predict and which measured the same."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pydantic import TypeAdapter

from servetwin.app.reports.run_words import measured_noun, trial_words
from servetwin.app.verdict.claims import Comparison, compare
from servetwin.app.verdict.forecast import level_folder
from servetwin.app.verdict.same_load import same_requests
from servetwin.app.verdict.why.explanation import Explanation, read_explanation
from servetwin.loadtest.report.load_notes import why_cut_off
from servetwin.loadtest.report.server_metrics import load_server_metrics
from servetwin.loadtest.sweep.sweep import Sweep, is_sweep, load_sweep
from servetwin.sim.records.run import JOURNAL, SUMMARY, Run, RunError, load_run
from servetwin.workloads.errors import os_errors
from servetwin.workloads.files import mapping_in

RUN_FILES = ("meta.json", "summary.json", "requests.parquet", JOURNAL)
VERDICT = "verdict.json"
# What ``servetwin loadtest`` printed, beside its run.
REPORT = "report.json"
_PREDICTED = "predicted"


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run under the name that the report gives it; ``server`` is what its server said.

    ``verdict`` is that of its load test, such as ``PASS: 56 of 56 requests finished``.
    """

    name: str
    run: Run
    server: pd.DataFrame | None = None
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """A prediction, load tests of the same requests, and how they compare."""

    predicted: NamedRun
    measured: tuple[NamedRun, ...]
    comparison: Comparison
    why: Explanation | None = None
    """Why the prediction differs, where the verification was asked."""

    @property
    def name(self) -> str:
        """The folder that all its runs are in, or the prediction's own name."""
        parents = {named.name.rpartition("/")[0] for named in (self.predicted, *self.measured)}
        together = len(parents) == 1 and "" not in parents
        return parents.pop() if together else self.predicted.name

    @property
    def load(self) -> str:
        """What was sent and how often, in words."""
        return trial_words([named.run for named in self.measured])

    @property
    def noun(self) -> str:
        """What the measured runs are: load tests or recorded runs."""
        return measured_noun(self.measured[0].run.scenario)


def find_runs(folders: Sequence[Path]) -> tuple[list[NamedRun], list[Trial]]:
    """Find the runs in ``folders``, and the trials among them.

    A folder is a run (``replay --out``, ``loadtest --out``), a verification (``verify --out``,
    whose verdicts are taken as they stand), or holds some of either. Raises ``RunError`` that names
    a folder that is none of these, or is damaged.
    """
    names_by_folder: dict[Path, str] = {}
    for root in folders:
        for folder in _runs_in(root):
            names_by_folder.setdefault(folder.resolve(), _name(root, folder))
    names = _unique(list(names_by_folder.values()), list(names_by_folder))
    runs = {
        folder: _named_run(folder, name)
        for folder, name in zip(names_by_folder, names, strict=True)
    }
    return list(runs.values()), list(_trials(runs))


def _named_run(folder: Path, name: str) -> NamedRun:
    run = load_run(folder)
    why = why_cut_off(run.extra.get("delivered", {}))
    verdict = f"CUT OFF: {why}" if why else ""
    with suppress(OSError, ValueError, KeyError):
        record = mapping_in(folder / REPORT)
        verdict = f"{record['verdict']}: {record['reason']}"
    return NamedRun(name, run, load_server_metrics(folder), verdict)


def find_sweeps(folders: Sequence[Path]) -> dict[str, Sweep]:
    """Return the sweeps over load levels among ``folders`` by their names; raises ``RunError``."""
    sweeps = {folder.resolve(): folder for folder in folders if is_sweep(folder)}
    names = _unique([place.name for place in sweeps], list(sweeps))
    return {name: load_sweep(at) for name, at in zip(names, sweeps.values(), strict=True)}


def unsaved_runs(folders: Sequence[Path]) -> list[Path]:
    """Return the folders in ``folders`` that have the journal of a load test and no run."""
    run_folders = [folder for root in folders for folder in _runs_in(root)]
    return [at for at in run_folders if (at / JOURNAL).exists() and not (at / SUMMARY).exists()]


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a run, perhaps a damaged one."""
    return any((folder / name).exists() for name in RUN_FILES)


def runs_by_folder(folders: Sequence[Path]) -> dict[Path, Run]:
    """Return the runs in ``folders``, which ``find_runs`` describes; raises ``RunError``."""
    return {folder: load_run(folder) for root in folders for folder in _runs_in(root)}


def named_runs(runs: Mapping[str, Run]) -> list[NamedRun]:
    """Return runs by their folders under the names of these; where two are the same, whole
    paths."""
    folders = list(map(Path, runs))
    names = _unique([folder.resolve().name for folder in folders], folders)
    return [
        NamedRun(name, run, load_server_metrics(folder))
        for name, (folder, run) in zip(names, zip(folders, runs.values(), strict=True), strict=True)
    ]


def _runs_in(folder: Path) -> Iterator[Path]:
    if is_run(folder):
        yield folder
        return
    inside = [path for path in _subfolders(folder) if _holds_runs(path)]
    if not inside:
        raise RunError(
            f"{folder}: neither a run folder nor a folder of runs; give what "
            "replay --out, loadtest --out or verify --out wrote"
        )
    for path in inside:
        yield from _runs_in(path)


def _holds_runs(folder: Path) -> bool:
    names = {path.name for path in folder.iterdir()}
    return bool(names & {*RUN_FILES, VERDICT, _PREDICTED})


def _subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder, a prediction before its measurements."""
    if not folder.is_dir():
        return []
    inside = (path for path in folder.iterdir() if path.is_dir())
    return sorted(inside, key=lambda path: (path.name != _PREDICTED, path.name))


def _name(root: Path, folder: Path) -> str:
    root = root.resolve()
    return (Path(root.name) / folder.resolve().relative_to(root)).as_posix()


def _unique(names: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """Return the names; where several are the same, with the folders above that tell them apart."""
    same = {
        name: [at for of, at in zip(names, folders, strict=True) if of == name] for name in names
    }
    apart = {name: iter(_apart(places)) for name, places in same.items() if len(places) > 1}
    return [next(apart[name]) if name in apart else name for name in names]


def _apart(folders: Sequence[Path]) -> list[str]:
    """Return the ends of the paths of folders, as short as tells them apart."""
    deepest = max(len(folder.parts) for folder in folders)
    ends = (["/".join(at.parts[1:][-depth:]) for at in folders] for depth in range(2, deepest))
    return next(end for end in ends if len({*end}) == len(end))


def _trials(runs: dict[Path, NamedRun]) -> Iterator[Trial]:
    above = {parent for folder in runs for parent in list(folder.parents)[:2]}
    verdicts = {
        folder: verdict
        for place in sorted(above)
        if (place / VERDICT).exists()
        for folder, verdict in _read_verdicts(place).items()
    }
    for folder, comparison in verdicts.items():
        inside = [named for at, named in runs.items() if at.parent == folder]
        measured = [named for named in inside if named.run.kind == "loadtest"]
        for predicted in _simulations(inside):
            if measured:
                yield Trial(predicted, tuple(measured), comparison, read_explanation(folder))
    others = [named for at, named in runs.items() if at.parent not in verdicts]
    for predicted in _simulations(others):
        measured = [
            named
            for named in others
            if named.run.kind == "loadtest" and same_requests(predicted.run, named.run)
        ]
        if measured:
            comparison = compare(predicted.run, [named.run for named in measured])
            yield Trial(predicted, tuple(measured), comparison)


def _simulations(runs: Sequence[NamedRun]) -> list[NamedRun]:
    return [named for named in runs if named.run.kind == "simulation"]


def _read_verdicts(folder: Path) -> dict[Path, Comparison]:
    """Return the comparisons of a verification, by the folder of the runs.

    There is a folder for each load; recorded runs lie in ``folder``.
    """
    path = folder / VERDICT
    with os_errors(RunError, f"{path}: not a readable verdict", ValueError, KeyError, TypeError):
        record, read = mapping_in(path), TypeAdapter(Comparison).validate_python
        if "levels" not in record:
            return {folder: read(record["comparison"])}
        return {
            folder / level_folder(level["utilisation"]): read(level["comparison"])
            for level in record["levels"]
        }
