"""What may be done in the folder of runs.

Only its direct children are taken by name, and nothing is followed that leads out of it.
"""

import os
import re
import shutil
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from sim.records.run import RunError

MOST_ZIP_BYTES = 200_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")


def child(root: Path, name: str) -> Path:
    """The folder of that name directly in ``root``.

    Raises ``RunError`` for any other place, for a link, and where a link is inside.
    """
    path = _direct_child(root, name)
    if link := next((file for file in files_in(path) if file.is_symlink()), None):
        raise RunError(f"{name}: holds a link ({link.relative_to(root)}); links are not followed")
    return path


def new_child(root: Path, name: str) -> Path:
    """The path of a run to be saved; raises ``RunError`` for a bad name or one that is taken."""
    if not _NAME.fullmatch(name):
        raise RunError(
            f"{name!r}: a name has up to 80 letters, digits and . _ + -, a letter or digit first"
        )
    if os.path.lexists(root / name):
        raise RunError(f"{name}: there is one of that name already; choose another, or delete it")
    return root / name


def delete(root: Path, name: str) -> None:
    """Delete a direct child of ``root``; what links in it point to stays.

    Raises ``RunError`` where that cannot be.
    """
    try:
        shutil.rmtree(_direct_child(root, name))
    except OSError as error:
        raise RunError(f"{name}: cannot be deleted ({error.strerror})") from error


def zip_problem(root: Path, name: str) -> str | None:
    """Why a child cannot be a zip archive: it is too large to be held in memory."""
    size_bytes = sum(file.lstat().st_size for file in files_in(_direct_child(root, name)))
    if size_bytes <= MOST_ZIP_BYTES:
        return None
    return f"{size_bytes / 1e6:.0f} MB is too much for a download; copy the folder itself"


def zipped(root: Path, name: str) -> bytes:
    """A child as a zip archive; raises ``RunError`` where ``zip_problem`` has something to say."""
    folder = child(root, name)
    if problem := zip_problem(root, name):
        raise RunError(f"{name}: {problem}")
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(files_in(folder)):
            archive.write(file, file.relative_to(root))
    return buffer.getvalue()


def files_in(folder: Path) -> Iterator[Path]:
    """All files and links below a folder; links to folders are not entered."""
    for place, folders, names in os.walk(folder):
        for name in (*names, *(each for each in folders if (Path(place) / each).is_symlink())):
            yield Path(place) / name


def _direct_child(root: Path, name: str) -> Path:
    path = root / name
    if name in ("", ".", "..") or Path(name).name != name:
        raise RunError(f"{name!r}: not the name of a folder of runs")
    if path.is_symlink():
        raise RunError(f"{name}: a link; links are not followed")
    if not path.is_dir():
        raise RunError(f"{name}: no such folder of runs")
    return path
