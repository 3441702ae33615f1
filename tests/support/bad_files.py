"""Files that no command can use: without end, without structure, too large, or in disguise."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

from tests.support.paths import SAMPLE

ALIASES = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""Nine levels of nine aliases each: a billion values."""


def _write(data: bytes) -> Callable[[Path], None]:
    return lambda path: void(path.write_bytes(data))


def void(_: object) -> None:
    """Forget a result."""


def _bomb(path: Path) -> None:
    """Write 1 GiB of zeros, gzipped."""
    member = gzip.compress(bytes(2**24), mtime=0)
    path.write_bytes(member * 64)


def _long_line(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(100):
            file.write(b"x" * 10**6)


def _long_element(path: Path) -> None:
    """Write 90 MB; a file that is read as one text is in memory twice while it is decoded."""
    with path.open("wb") as file:
        file.write(b'[{"a": "')
        for _ in range(90):
            file.write(b"x" * 10**6)


def _link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


BAD_FILES: dict[str, Callable[[Path], None]] = {
    "missing": lambda path: None,
    "empty": _write(b""),
    "folder": lambda path: path.mkdir(),
    "pipe": lambda path: os.mkfifo(path),
    "zeros": _link("/dev/zero"),
    "random": _link("/dev/urandom"),
    "gzip bomb": _bomb,
    "cut gzip": _write(gzip.compress(SAMPLE.read_bytes())[:2000]),
    "long line": _long_line,
    "long element": _long_element,
    "utf-16": _write('{"a": 1}\n'.encode("utf-16")),
    "nul bytes": _write(b"\x00" * 5000),
    "nul in text": _write(b'{"a\x00": "\x00"}\n'),
    "not utf-8": _write(b'{"a": "\xff\xfe"}\n'),
    "beyond a float": _write(b'{"a": 1e309, "b": -1e309}\n'),
    "not a number": _write(b'{"a": NaN}\n'),
    "deep": _write(b"[" * 100_000),
    "deep and closed": _write(b"[" * 100_000 + b"]" * 100_000),
    "deep keys": _write(b'{"a":' * 50_000),
    "digits": _write(b'{"a": ' + b"9" * 100_000 + b"}\n"),
    "aliases": _write(ALIASES.encode()),
    "itself": _write(b"a: &a [*a]\n"),
    "twice": _write(b"seed: 1\nseed: 2\n"),
    "sexagesimal": _write(b"seed: 1:30:00\n"),
    "tag": _write(b"seed: !!python/object/apply:os.system ['touch bad']\n"),
    "csv of nothing": _write(b",,,,\n,,,,\n"),
    "quote": _write(b'a,b\n"' + b"x" * 200_000 + b"\n"),
    "parquet in name": _write(b"PAR1"),
}
"""How each is made at a path, by name."""


def make(folder: Path) -> dict[str, Path]:
    """Make all of them in a folder."""
    found = {}
    for name, write in BAD_FILES.items():
        found[name] = folder / name.replace(" ", "-")
        write(found[name])
    return found
