"""Claim a folder for one run before the work begins, so that no other run is overwritten.

The claim file of the folder is locked as long as the process that writes the run lives. It lists
the files of the run: another run that replaces this one removes these and leaves all others.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from itertools import count
from pathlib import Path

from servetwin.sim.records.file_lock import ClaimError, locked, note, unmade
from servetwin.sim.records.own_files import CLAIM, RUN_FILES, files_in, is_run, named_as_runs


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
            claim = _read(claim_file, folder)
            if not resume:
                claim.require_replaceable(folder, overwrite)
            claim.write(claim_file, os.getpid())
            try:
                yield RunClaim(folder, frozenset() if resume else claim.own)
            finally:
                own = files_in(folder) - claim.others
                _Claim(own, claim.others).write(claim_file, None)
                if not own:
                    (folder / CLAIM).unlink(missing_ok=True)
    finally:
        _remove_empty(made)


@contextmanager
def claimed_new_run(stem: Path) -> Iterator[RunClaim]:
    """Claim a new folder: ``stem``, or ``stem-2`` and so on where it is taken."""
    for number in count(1):
        folder = stem if number == 1 else stem.with_name(f"{stem.name}-{number}")
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
        except OSError as error:
            if isinstance(error, FileExistsError) and folder.parent.is_dir():
                continue
            raise unmade(folder, error) from error
        break
    try:
        with claimed_run(folder) as claim:
            yield claim
    finally:
        _remove_empty([folder])


@dataclass(frozen=True, slots=True)
class _Claim:
    """The files of a folder that belong to its run, and those that do not, as paths in it."""

    own: frozenset[str]
    others: frozenset[str]

    def require_replaceable(self, folder: Path, overwrite: bool) -> None:
        """Raise ``ClaimError`` unless a new run may take the place of the old one, if any."""
        if self.own and not overwrite:
            raise ClaimError(f"--out {folder}: has a run; --overwrite replaces it")
        if taken := sorted(self.others & RUN_FILES):
            raise ClaimError(
                f"--out {folder}: {taken[0]} is there, and no run has written it; move it, or name "
                "another folder"
            )

    def write(self, claim_file: FileIO, process_id: int | None) -> None:
        """Write the claim: of a run in progress with the number of its process."""
        files = {"files": sorted(self.own), "others": sorted(self.others)}
        note(claim_file, {"pid": process_id, **files})


def _make(folder: Path, resume: bool) -> list[Path]:
    """Make the folder; return the folders that were made, the deepest first."""
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
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
    except OSError as error:
        raise unmade(folder, error) from error
    return missing


def _require_no_run_above(folder: Path) -> None:
    """Raise ``ClaimError`` where the folder lies in that of a run in progress."""
    for above in folder.absolute().parents:
        if (above / CLAIM).is_file():
            with locked(above / CLAIM, above, shared=True):
                pass


def _read(claim_file: FileIO, folder: Path) -> _Claim:
    """Return what the last run left; the files of one that died are known by their names."""
    there, named = files_in(folder), named_as_runs(folder)
    try:
        left = json.load(claim_file)
        listed, others = frozenset(left["files"]), frozenset(left["others"])
        own = listed if left["pid"] is None else listed | (named - others)
    except (ValueError, KeyError, TypeError):
        own = named
    return _Claim(own & there, there - own)


def _remove(folder: Path, files: frozenset[str]) -> None:
    """Remove files of the old run, and the folders below ``folder`` that are empty then."""
    for name in files:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise ClaimError(
                f"--out {folder}: {name}: cannot be removed ({error.strerror})"
            ) from error
    inner = {path for name in files for path in Path(name).parents} - {Path()}
    deepest_first = sorted(inner, key=lambda path: len(path.parts), reverse=True)
    _remove_empty([folder / path for path in deepest_first])


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
