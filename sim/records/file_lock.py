"""Lock a file as a sign that a process is at work; the lock of a process that ends is free."""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

from servetwin.workloads.errors import ServetwinError


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
        with _opened(path, place) as opened:
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


def note(opened: FileIO, record: Mapping[str, Any]) -> None:
    """Write a record to a locked file; on a full disk the lock holds without it."""
    moment = time.strftime("%Y-%m-%d %H:%M:%S %z")
    with suppress(OSError):
        opened.truncate(0)
        opened.seek(0)
        opened.write(json.dumps({"time": moment, **record}, indent=1).encode())


def unmade(place: Path, error: OSError) -> ClaimError:
    """Return the error for a place that cannot be made."""
    return ClaimError(f"--out {place}: cannot be made ({error.strerror})")


def _opened(path: Path, place: Path) -> FileIO:
    try:
        return FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
    except OSError as error:
        raise unmade(place, error) from error


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
