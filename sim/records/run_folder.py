"""The files of a run on a disk that may be full: each is written whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SUMMARY = "summary.json"
"""Written last, and only if all other files of its folder are: it marks a complete run."""
JOURNAL = "journal.jsonl"
"""Of a load test until its run is saved (``loadtest.run.journal``)."""

Files = Iterable[tuple[str, bytes | None]]
"""Paths in the folder and contents, the most valuable first; None removes the file."""


@dataclass(frozen=True, slots=True)
class Unwritten:
    """A file that could not be written, its size, and the reason."""

    name: str
    size_bytes: int
    reason: str


def within(subfolder: str, files: Files) -> Files:
    """Return ``files`` one folder deeper."""
    return ((f"{subfolder}/{name}", data) for name, data in files)


def write_files(folder: Path, files: Files) -> list[Unwritten]:
    """Write what fits into ``folder``, created if missing; return what could not be written."""
    unwritten: list[Unwritten] = []
    for name, data in files:
        if Path(name).name == SUMMARY and _lacks_any(Path(name).parent, unwritten):
            continue
        try:
            _write_whole(folder / name, data)
        except OSError as error:
            reason = error.strerror or str(error)
            unwritten.append(Unwritten(name, len(data or b""), reason))
    return unwritten


def write_elsewhere(files: Files) -> tuple[Path | None, list[Unwritten]]:
    """Write into a new folder of the temporary directory.

    Return the folder (None if nothing could be written) and what could not be written.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="servetwin-run-"))
    except OSError:
        return None, []
    unwritten = write_files(folder, files)
    if any(path.is_file() for path in folder.rglob("*")):
        return folder, unwritten
    shutil.rmtree(folder)
    return None, unwritten


def _lacks_any(folder: Path, unwritten: Iterable[Unwritten]) -> bool:
    return any(Path(file.name).parent == folder for file in unwritten)


def _write_whole(path: Path, data: bytes | None) -> None:
    if data is None:
        with suppress(OSError):  # If it cannot be removed, nothing else can be written either.
            path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
