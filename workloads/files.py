"""Trace files: opened plain or gzipped by their first bytes, written whole or not at all."""

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from workloads.errors import TraceError

_GZIP_MAGIC = b"\x1f\x8b"
_REASONS = {FileNotFoundError: "no such file", IsADirectoryError: "a directory, not a trace file"}


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a plain or gzipped file as text; bytes that are not UTF-8 become lone surrogates.

    Raises TraceError, also while it is read, where the file is missing, a directory or damaged.
    """
    try:
        with path.open("rb") as raw:
            zipped = raw.peek(2)[:2] == _GZIP_MAGIC
            data = gzip.GzipFile(fileobj=raw) if zipped else raw
            # newline="\n": only a line feed ends a line, so that numbers agree with an editor's
            yield TextIOWrapper(data, "utf-8-sig", errors="surrogateescape", newline="\n")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{path}: the gzip data are truncated or damaged ({error})") from None
    except OSError as error:
        why = _REASONS.get(type(error), f"cannot be read: {error.strerror}")
        raise TraceError(f"{path}: {why}") from None


def files_in(directory: Path, endings: tuple[str, ...]) -> list[Path]:
    """Return the visible files with an ending, sorted. Raises TraceError if there is none."""
    try:
        names = sorted(directory.iterdir())
    except OSError as error:
        raise TraceError(f"{directory}: cannot be read: {error.strerror}") from None
    files = [file for file in names if file.name.endswith(endings) and file.name[0] != "."]
    if not files:
        wanted = ", ".join(f"*{ending}" for ending in endings)
        raise TraceError(f"{directory}: a directory without any {wanted}: wants a trace file")
    return files


def write_whole(path: Path, text: str) -> None:
    """Write ``text``, gzipped if the name ends in ``.gz``; readers see all of it or the old file.

    The same text gives the same bytes: the gzip header holds no time and no name. Raises
    TraceError where the place cannot be written.
    """
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)
