"""The compiled core of a checkout, kept in the user's cache by the content of its sources.

Python takes the modules that ``compile_core.py`` compiled of exactly these sources. Of sources that
have changed since then it takes none, and runs them interpreted: the results are the same.
"""

import os
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

PURE = "SERVETWIN_PURE"
"""The environment variable that turns the compiled core off, where it is not empty."""
SOURCES = ("policies", "sim/catalogue", "sim/core", "sim/records", "sim/step_times", "workloads")
"""Folders with all that the compiled modules are made of and import."""
_COMPILED = (
    *("servetwin.policies.", "servetwin.sim.", "servetwin__mypyc"),
    *("servetwin.workloads.block_ids", "servetwin.workloads.graphs."),
)
"""What the names of compiled modules begin with; other imports need not read the sources."""
_SUFFIX = EXTENSION_SUFFIXES[0]


def digest(root: Path) -> str:
    """Return a name for all that the compiled modules of the checkout ``root`` depend on."""
    from hashlib import sha256

    content = sha256(_SUFFIX.encode())
    content.update((root / "compile_core.py").read_bytes())
    for source in SOURCES:
        for folder, below, names in os.walk(root / source):
            below.sort()
            for name in sorted(name for name in names if name.endswith(".py")):
                path = f"{folder}/{name}"
                with open(path, "rb", 0) as file:
                    content.update(path.removeprefix(str(root)).encode() + file.read())
    return content.hexdigest()[:32]


def kept(root: Path) -> Path:
    """Return where the compiled modules of the sources in ``root`` are kept, if they are."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home, "servetwin", "core", digest(root))


class CompiledCore:
    """Finds the compiled modules of the checkout ``root``, ahead of Python's own finders."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder: Path | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a compiled module is, None of another; the first call reads the sources."""
        if not name.startswith(_COMPILED):
            return None
        if self._folder is None:
            self._folder = kept(self._root)
        file = self._folder / (name.replace(".", "/") + _SUFFIX)
        return spec_from_file_location(name, file) if file.is_file() else None
