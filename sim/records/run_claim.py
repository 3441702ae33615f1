"""Claim a folder for one run before the work begins, so that no other run is overwritten.

The claim file of the folder is locked as long as the process that writes the run lives. It lists
the files of the run: another run that replaces this one removes these and leaves all others.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from itertools import count
from pathlib import Path
from typing import Any

from servetwin.sim.records.run import JOURNAL
from servetwin.workloads.errors import ServetwinError, os_errors
from servetwin.workloads.readers.native import is_trace

# The claim file of a folder (``sim.records.run_claim``), which lists the files of its run.
CLAIM = ".servetwin-run.json"

# Names of what runs, verifications and sweeps write.
RUN_FILES = frozenset({
    "requests.parquet", "meta.json", "scenario.yaml", "steps.parquet", "pauses.parquet",
    "handovers.parquet", "summary.json", "trace.jsonl", "server_metrics.parquet", "forecast.json",
    "predicted-requests.parquet", "profile.json", "verdict.json", "why.json", JOURNAL,
    "sweep.json", "report.json", "report.csv", "report.html",
})  # fmt: skip

# Files that tell what a folder has, and a key of theirs.
_MARKS = {
    "meta.json": "kind",
    "forecast.json": "schema",
    "verdict.json": "outcome",
    "sweep.json": "sweep",
}


def files_in(folder: Path) -> frozenset[str]:
    """Return the files in a folder and below, as paths in it.

    Its own claim file is left out, and so are folders with a claim of their own.
    """
    names_below: set[str] = set()
    for place, folders, names in os.walk(folder):
        at = Path(place)
        folders[:] = [name for name in folders if not (at / name / CLAIM).exists()]
        links = [name for name in folders if (at / name).is_symlink()]
        names_below.update(str((at / name).relative_to(folder)) for name in (*names, *links))
    return frozenset(names_below - {CLAIM})


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
        content = json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and key in content


@dataclass(frozen=True, slots=True)
class RunClaim:
    """A folder that is claimed, and the files of the old run that is to be replaced."""

    folder: Path
    replaced: frozenset[str]

    def begin(self) -> Path:
        """Return the folder, for the first file of the new run; the files of the old one go."""
        _remove(self.folder, self.replaced)
        return self.folder


@contextmanager
def claimed_run(
    folder: Path, *, overwrite: bool = False, resume: bool = False
) -> Iterator[RunClaim]:
    """Make ``folder`` and claim it until the end of the block.

    The run that ``overwrite`` replaces loses its files, and no other, when the new run begins; that
    which ``resume`` goes on with keeps them. A folder where nothing was written is removed again.

    Raises ``ClaimError`` where the folder has files and is that of no run, has a run and neither is
    given, belongs to a run in progress, or cannot be made.
    """
    made = _make(folder, resume)
    try:
        _require_no_run_above(folder)
        with locked(folder / CLAIM, folder) as claim_file:
            run_files, others = _files_left(claim_file, folder)
            if not resume:
                _require_replaceable(folder, run_files, others, overwrite)
            _note(claim_file, os.getpid(), files=sorted(run_files), others=sorted(others))
            try:
                yield RunClaim(folder, frozenset() if resume else run_files)
            finally:
                written = sorted(files_in(folder) - others)
                _note(claim_file, None, files=written, others=sorted(others))
                if not written:
                    (folder / CLAIM).unlink(missing_ok=True)
    finally:
        _remove_empty(made)


@contextmanager
def claimed_new_run(stem: Path) -> Iterator[RunClaim]:
    """Claim a new folder: ``stem``, or ``stem-2`` and so on where it is taken."""
    for number in count(1):
        folder = stem if number == 1 else stem.with_name(f"{stem.name}-{number}")
        with _making(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                folder.mkdir()
                break
    try:
        with claimed_run(folder) as claim:
            yield claim
    finally:
        _remove_empty([folder])


def _require_replaceable(
    folder: Path, run_files: frozenset[str], others: frozenset[str], overwrite: bool
) -> None:
    """Raise ``ClaimError`` unless a new run may take the place of the old one, if any."""
    if run_files and not overwrite:
        raise ClaimError(f"--out {folder}: has a run; --overwrite replaces it")
    if taken := sorted(others & RUN_FILES):
        raise ClaimError(
            f"--out {folder}: {taken[0]} is there, and no run has written it; move it, or name "
            "another folder"
        )


def _make(folder: Path, resume: bool) -> list[Path]:
    """Make the folder; return the folders that were made, the deepest first."""
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    with _making(folder):
        folder.mkdir(parents=True, exist_ok=True)
        is_free = (folder / CLAIM).exists() or not any(folder.iterdir())
        if (
            not is_free
            and not is_run(folder)
            and not (resume and any(map(is_run, folder.iterdir())))
        ):
            raise ClaimError(
                f"--out {folder}: has files and is no run folder; name a new or an empty one"
            )
    return missing


def _require_no_run_above(folder: Path) -> None:
    """Raise ``ClaimError`` where the folder lies in that of a run in progress."""
    for above in folder.absolute().parents:
        if (above / CLAIM).is_file():
            with locked(above / CLAIM, above, shared=True):
                pass


def _files_left(claim_file: FileIO, folder: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return the files of the last run, and the others, as paths in the folder.

    The files of a run that died are known by their names.
    """
    there, named = files_in(folder), named_as_runs(folder)
    try:
        left = json.load(claim_file)
        listed, others = frozenset(left["files"]), frozenset(left["others"])
        run_files = listed if left["pid"] is None else listed | (named - others)
    except (ValueError, KeyError, TypeError):
        run_files = named
    return run_files & there, there - run_files


def _remove(folder: Path, files: frozenset[str]) -> None:
    """Remove files of the old run, and the folders below ``folder`` that are empty then."""
    for name in files:
        with os_errors(ClaimError, f"--out {folder}: {name}: cannot be removed"):
            (folder / name).unlink(missing_ok=True)
    inner = {path for name in files for path in Path(name).parents} - {Path()}
    deepest_first = sorted(inner, key=lambda path: len(path.parts), reverse=True)
    _remove_empty([folder / path for path in deepest_first])


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


class ClaimError(ServetwinError):
    """A place cannot be taken for what a command writes."""


@contextmanager
def locked(path: Path, place: Path, *, shared: bool = False) -> Iterator[FileIO]:
    """Make a file, if it is missing, and lock it; ``place`` is what it stands for.

    A file that was made is removed if ``ClaimError`` comes out of the block. Raises ``ClaimError``
    where another process holds the lock, or the file cannot be made.
    """
    is_new = not path.exists()
    while True:
        with _making(place):
            opened = FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
        with opened:
            try:
                fcntl.flock(opened, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except OSError:
                raise ClaimError(
                    f"--out {place}: {_writer(opened)} writes there; name another place, or wait"
                ) from None
            if not _is_open_at(opened, path):
                continue  # Another process removed it in between.
            try:
                yield opened
            except ClaimError:
                if is_new:
                    path.unlink(missing_ok=True)
                raise
            return


def _note(opened: FileIO, process_id: int | None, **record: Any) -> None:
    """Write a record to a locked file: of what is in progress with the number of its process.

    On a full disk the lock holds without it.
    """
    moment = time.strftime("%Y-%m-%d %H:%M:%S %z")
    with suppress(OSError):
        opened.truncate(0)
        opened.seek(0)
        opened.write(json.dumps({"time": moment, "pid": process_id, **record}, indent=1).encode())


def _making(place: Path) -> AbstractContextManager[None]:
    """Raise ``ClaimError`` where a place cannot be made in the block."""
    return os_errors(ClaimError, f"--out {place}: cannot be made")


def _is_open_at(opened: FileIO, path: Path) -> bool:
    """Return whether the file is still the one at ``path``."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(opened.fileno()), path.stat())
    return False


def _writer(opened: FileIO) -> str:
    """Return which process holds the lock, as far as it could note it."""
    try:
        return f"process {int(json.load(opened)['pid'])}"
    except (ValueError, KeyError, TypeError):
        return "another process"


@contextmanager
def claimed_file(path: Path) -> Iterator[Path]:
    """Yield ``path``, which no other process claims until the end.

    Raises ``ClaimError`` where another process does, or no file can be written there.
    """
    with _making(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise ClaimError(f"--out {path}: a folder; name a file")
    claim = path.with_name(f".{path.name}.claim")
    with locked(claim, path) as opened:
        _note(opened, os.getpid())
        try:
            yield path
        finally:
            claim.unlink(missing_ok=True)


@contextmanager
def claimed_output(path: Path, kind: str, *, overwrite: bool) -> Iterator[Path]:
    """Yield ``path`` for a new ``profile`` or ``trace``; ``overwrite`` replaces an old one.

    Raises ``ClaimError`` as ``claimed_file`` does, and for any other file that is there.
    """
    with claimed_file(path):
        if os.path.lexists(path) and not _IS_OURS[kind](path):
            raise ClaimError(f"--out {path}: is there, and is no {kind}; name another file")
        if os.path.lexists(path) and not overwrite:
            raise ClaimError(f"--out {path}: is a {kind}; --overwrite replaces it")
        yield path


_IS_OURS: Mapping[str, Callable[[Path], bool]] = {
    "profile": lambda path: has_key(path, "layouts"),
    "trace": is_trace,
}
