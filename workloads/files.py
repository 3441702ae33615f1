"""Files of users: plain or gzipped text within bounds, written whole or not at all."""

import errno
import gzip
import json
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, Self

from servetwin.workloads.errors import TraceError
from servetwin.workloads.yaml_text import load_yaml

MOST_LINE_CHARACTERS = 2**25
# Limit of a file that is read as one text, such as the results of a load test.
MOST_TEXT_CHARACTERS = 2**28
# Limit of a file that is one document: a scenario, a profile, a model.
MOST_DOCUMENT_BYTES = 2**24
# Times its size that a gzipped file may unpack to; traces unpack to 5 to 30 times.
MOST_RATIO = 100
_FREE_UNPACKED_BYTES = 2**24
# How the name of a draft ends, after the number of the process that writes it on this machine.
_DRAFT = f".{os.uname().nodename}.draft"
_GZIP_MAGIC = b"\x1f\x8b"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_REASONS = {FileNotFoundError: "no such file", IsADirectoryError: "a directory, not a trace file"}
_KINDS = {
    stat.S_IFIFO: "a pipe, not a file",
    stat.S_IFCHR: "a device, not a file",
    stat.S_IFBLK: "a device, not a file",
    stat.S_IFSOCK: "a socket, not a file",
}


def cache_folder() -> Path:
    """Return where compiled files and looked-up times are kept between runs."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "servetwin"


class BoundedText(TextIOWrapper):
    """The text of a trace, whose lines are of a bounded length; only a line feed ends one."""

    def __init__(self, data: BinaryIO | gzip.GzipFile, path: Path) -> None:
        super().__init__(data, "utf-8-sig", errors="surrogateescape", newline="\n")
        self._path = path
        self._line = 0

    def __next__(self) -> str:  # type: ignore[override]  # typeshed: the base is of bytes
        """Return the next line. Raises TraceError for one that is too long."""
        line = self.readline(MOST_LINE_CHARACTERS)
        if not line:
            raise StopIteration
        self._line += 1
        if len(line) == MOST_LINE_CHARACTERS and line[-1] != "\n":
            raise too_long(self._path, self._line)
        return line

    def whole(self) -> str:
        """Return all of the text. Raises TraceError where it is too long."""
        text = self.read(MOST_TEXT_CHARACTERS + 1)
        if len(text) > MOST_TEXT_CHARACTERS:
            raise TraceError(f"{self._path}: more than {MOST_TEXT_CHARACTERS:,} characters")
        return text


def too_long(path: Path, line: int) -> TraceError:
    """Return the error for a line of more than ``MOST_LINE_CHARACTERS``."""
    return TraceError(
        f"{path}:{line}: a line of more than {MOST_LINE_CHARACTERS:,} "
        "characters; a trace has a request on each line"
    )


class _BoundedGzip(gzip.GzipFile):
    """Unpacked data that stop where a small file would fill the memory."""

    def __init__(self, raw: BinaryIO, path: Path) -> None:
        super().__init__(fileobj=raw)
        self._path = path
        self._most_bytes = max(_FREE_UNPACKED_BYTES, MOST_RATIO * os.fstat(raw.fileno()).st_size)
        self._unpacked_bytes = 0

    def read1(self, size: int | None = -1) -> bytes:
        """Return some data. Raises TraceError where there were too many."""
        data = super().read1(-1 if size is None else size)
        self._unpacked_bytes += len(data)
        if self._unpacked_bytes > self._most_bytes:
            raise TraceError(
                f"{self._path}: the gzip data unpack to more than {self._most_bytes:,} bytes, "
                f"{MOST_RATIO} times their size; unpack the file, if it is a trace"
            )
        return data


@contextmanager
def open_text(path: Path) -> Iterator[BoundedText]:
    """Open a plain or gzipped file as text; bytes that are not UTF-8 become lone surrogates.

    Raises TraceError, also while it is read, where the file is missing, none, damaged or too large.
    """
    with open_bytes(path) as data:
        yield BoundedText(data, path)


@contextmanager
def open_bytes(path: Path) -> Iterator[BufferedReader | gzip.GzipFile]:
    """Open a plain or gzipped file as bytes, to be read by ``read1``; raises as ``open_text``."""
    try:
        require_file(path)
        with path.open("rb") as raw:
            magic = raw.peek(2)[:2]
            if magic in _UTF_16_MARKS:
                raise TraceError(f"{path}: text in UTF-16; save it as UTF-8 (Excel: CSV UTF-8)")
            yield _BoundedGzip(raw, path) if magic == _GZIP_MAGIC else raw
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{path}: the gzip data are truncated or damaged ({error})") from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> TraceError:
    why = _REASONS.get(type(error), f"cannot be read: {error.strerror}")
    return TraceError(f"{str(path)[:200]}: {why}")


def require_there(path: Path) -> None:
    """Raise TraceError for a path that leads nowhere, before what takes time is imported."""
    try:
        require_file(path)
    except OSError as error:
        raise _unreadable(path, error) from None


def document(path: Path) -> bytes:
    """Return the bytes of a file that is one document.

    Raises OSError where it cannot be read, is no regular file, or is too large to be one.
    """
    require_file(path)
    with path.open("rb") as file:
        data = file.read(MOST_DOCUMENT_BYTES + 1)
    if len(data) > MOST_DOCUMENT_BYTES:
        raise OSError(errno.EFBIG, f"more than {MOST_DOCUMENT_BYTES:,} bytes")
    return data


def mapping_in(path: Path) -> dict[str, Any]:
    """Return the mapping that a file of ours holds, in YAML or JSON by its ending.

    Raises OSError where it cannot be read, and ValueError where it holds anything else.
    """
    data = document(path)
    try:
        value = load_yaml(data) if path.suffix == ".yaml" else json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name}: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path.name}: not a mapping")
    return value


def require_file(path: Path) -> None:
    """Raise OSError for a pipe or a device, which may never end, and for an impossible path."""
    try:
        kind = _KINDS.get(stat.S_IFMT(path.stat().st_mode))
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from None
    if kind:
        raise OSError(errno.EINVAL, kind)


def is_directory(path: Path) -> bool:
    """Return whether a path is a directory; False for one that no system can have."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


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
    try:
        with Drafts() as drafts:
            drafts.of(path).write_bytes(data)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror}") from None


class Drafts:
    """Temporary names for files, each beside its place; all get their own when a block ends well.

    After an error none does, and what was written is removed; what a process left that was killed,
    by the next one that writes into the folder.
    """

    def __init__(self) -> None:
        self._drafts: dict[Path, Path] = {}

    def of(self, path: Path) -> Path:
        """Return where to write what becomes ``path``; of a device or a folder, itself."""
        if path.exists() and not path.is_file():
            return path
        if path.parent not in {draft.parent for draft in self._drafts.values()}:
            _remove_abandoned(path.parent)
        self._drafts[path] = path.with_name(f".{path.name}.{os.getpid()}{_DRAFT}")
        return self._drafts[path]

    def drop(self) -> None:
        """Remove what has no name yet."""
        for draft in self._drafts.values():
            with suppress(OSError):
                draft.unlink()
        self._drafts.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        try:
            for path, draft in () if kind else tuple(self._drafts.items()):
                draft.replace(path)
        finally:
            self.drop()


def _remove_abandoned(folder: Path) -> None:
    """Remove the drafts of processes of this machine that have died."""
    for draft in folder.glob(f".*.*{_DRAFT}"):
        with suppress(OSError, ValueError):
            try:
                os.kill(int(draft.name.removesuffix(_DRAFT).rpartition(".")[2]), 0)
            except ProcessLookupError:
                draft.unlink()
