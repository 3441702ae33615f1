"""Claim a single file, such as a profile, before the work begins that ends with writing it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servetwin.sim.records.file_lock import ClaimError, locked, note, unmade
from servetwin.sim.records.own_files import has_key


@contextmanager
def claimed_file(path: Path) -> Iterator[Path]:
    """Yield ``path``, which no other process claims until the end.

    Raises ``ClaimError`` where another process does, or no file can be written there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unmade(path, error) from error
    if path.is_dir():
        raise ClaimError(f"--out {path}: a folder; name a file")
    claim = path.with_name(f".{path.name}.claim")
    with locked(claim, path) as opened:
        note(opened, {"pid": os.getpid()})
        try:
            yield path
        finally:
            claim.unlink(missing_ok=True)


@contextmanager
def claimed_profile(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield ``path`` for a new profile, in the place of an old one if ``overwrite``.

    Raises ``ClaimError`` as ``claimed_file`` does, and for any other file that is there.
    """
    with claimed_file(path):
        if os.path.lexists(path) and not has_key(path, "layouts"):
            raise ClaimError(f"--out {path}: is there, and is no profile; name another file")
        if os.path.lexists(path) and not overwrite:
            raise ClaimError(f"--out {path}: is a profile; --overwrite replaces it")
        yield path
