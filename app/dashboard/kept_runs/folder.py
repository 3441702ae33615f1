"""The folder of runs: what is in it, and what may be done in it.

Only its direct children are taken by name, and no link is followed out of it.
"""

import os
import re
import shutil
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from servetwin.app.reports.report_folders import is_run
from servetwin.sim.records.run import RunError
from servetwin.workloads.errors import os_errors

MOST_ZIP_BYTES = 200_000_000
_DEEPEST = 3
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")


def child(root: Path, name: str) -> Path:
    """Return the folder of that name directly in ``root``.

    Raises ``RunError`` for any other place, for a link, and where a link is inside.
    """
    path = _direct_child(root, name)
    if link := next((file for file in files_in(path) if file.is_symlink()), None):
        raise RunError(f"{name}: holds a link ({link.relative_to(root)}); links are not followed")
    return path


def new_child(root: Path, name: str) -> Path:
    """Return the path of a run to be saved; raises ``RunError`` for a bad name or a taken one."""
    if not _NAME.fullmatch(name):
        raise RunError(
            f"{name!r}: a name has up to 80 letters, digits and . _ + -, a letter or digit first"
        )
    if os.path.lexists(root / name):
        raise RunError(f"{name}: there is one of that name already; choose another, or delete it")
    return root / name


def delete(root: Path, name: str) -> None:
    """Delete a direct child of ``root``; targets of links in it stay.

    Raises ``RunError`` where it cannot be deleted.
    """
    with os_errors(RunError, f"{name}: cannot be deleted"):
        shutil.rmtree(_direct_child(root, name))


def zip_problem(root: Path, name: str) -> str | None:
    """Return why a child cannot be zipped (too large to be held in memory), or None."""
    size_bytes = sum(file.lstat().st_size for file in files_in(_direct_child(root, name)))
    if size_bytes <= MOST_ZIP_BYTES:
        return None
    return f"{size_bytes / 1e6:.0f} MB is too much for a download; copy the folder itself"


def zipped(root: Path, name: str) -> bytes:
    """Return a child as a zip archive; raises ``RunError`` with its ``zip_problem``."""
    folder = child(root, name)
    if problem := zip_problem(root, name):
        raise RunError(f"{name}: {problem}")
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(files_in(folder)):
            archive.write(file, file.relative_to(root))
    return buffer.getvalue()


def files_in(folder: Path) -> Iterator[Path]:
    """Yield all files and links below a folder; links to folders are not entered."""
    for place, folders, names in os.walk(folder):
        for name in (*names, *(each for each in folders if (Path(place) / each).is_symlink())):
            yield Path(place) / name


def kept_runs(root: Path) -> list[str]:
    """Return the run folders under ``root``, by their paths from there; the newest first."""
    folders = sorted(_run_folders(root), key=lambda folder: (-_changed_s(folder), str(folder)))
    return [folder.relative_to(root).as_posix() for folder in folders]


def last_change_s(folder: Path) -> float:
    """Return when a file below ``folder`` was last written, added or deleted, at any depth."""
    return max(_changed_s(path) for path in (folder, *folder.rglob("*")))


def _run_folders(folder: Path, depth: int = 0) -> Iterator[Path]:
    if is_run(folder):
        yield folder
    elif depth < _DEEPEST and folder.is_dir():
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                yield from _run_folders(path, depth + 1)


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # deleted meanwhile
        return 0.0


def _direct_child(root: Path, name: str) -> Path:
    path = root / name
    if name in ("", ".", "..") or Path(name).name != name:
        raise RunError(f"{name!r}: not the name of a folder of runs")
    if path.is_symlink():
        raise RunError(f"{name}: a link; links are not followed")
    if not path.is_dir():
        raise RunError(f"{name}: no such folder of runs")
    return path
