"""Compile a C file for this processor and one shape, once, and load it.

The file includes headers beside it, and none of Python or torch: any C compiler makes it in half a
second, and the result serves every version of both. It is kept in the user's cache folder, under a
name that holds the source, its headers, the flags and the processor.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from servetwin.workloads.files import Drafts, cache_folder

FLAGS = (
    "-O3", "-march=native", "-shared", "-fPIC",
    # Sums may be reordered, so that they fill a vector register; infinities stay infinite.
    "-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros",
)  # fmt: skip
WIDE_VECTORS, PARALLEL = "-mprefer-vector-width=512", "-fopenmp"
# Flags that not every compiler knows; the first set that compiles is taken.
CHOICES = ((WIDE_VECTORS, PARALLEL), (PARALLEL,), (WIDE_VECTORS,), ())


def load_compiled(source: Path, defines: Mapping[str, int]) -> ctypes.CDLL | None:
    """Return the library of ``source`` with ``defines``; None where nothing here compiles it."""
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if compiler is None:
        return None
    given = [f"-D{name}={value}" for name, value in defines.items()]
    library = cache_folder() / f"{source.stem}-{_digest(source, compiler, given)}.so"
    loaded = _load(library)
    if loaded is None and _compile(compiler, source, given, library):
        loaded = _load(library)
    return loaded


def load_functions(
    source: Path, arguments: Mapping[str, Sequence[Any]], defines: Mapping[str, int] | None = None
) -> ctypes.CDLL | None:
    """Return the library of ``source`` with the types of its functions, none of which returns."""
    library = load_compiled(source, defines or {})
    if library is not None:
        for name, types in arguments.items():
            function = getattr(library, name)
            function.argtypes, function.restype = list(types), None
    return library


def _load(library: Path) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(library))
    except OSError:
        return None


def _compile(compiler: str, source: Path, defines: list[str], library: Path) -> bool:
    """Return whether ``library`` is made, in one piece: another process may make it as well."""
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with Drafts() as drafts:
            made = str(drafts.of(library))
            for choice in CHOICES:
                command = [compiler, *FLAGS, *choice, *defines, str(source), "-o", made, "-lm"]
                if not subprocess.run(command, capture_output=True, check=False).returncode:
                    return True
            drafts.drop()
    except OSError:
        return False
    return False


def _digest(source: Path, compiler: str, defines: list[str]) -> str:
    cpuinfo = Path("/proc/cpuinfo")
    features = [line for line in _lines(cpuinfo) if line.startswith(("flags", "Features"))][:1]
    version = str(Path(compiler).stat().st_size)
    headers = [path.read_text() for path in sorted(source.parent.glob("*.h"))]
    parts = [source.read_text(), *headers, compiler, version, *FLAGS, *defines, *features]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
