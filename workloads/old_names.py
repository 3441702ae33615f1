"""Old names, importable for one version with a warning that names the new ones.

``old_names.txt`` has a line for each module of version 0.1 that stands elsewhere now: its old name,
its new name, and ``Old=New`` for each class or function with another name there.
"""

import importlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple


class NewPlace(NamedTuple):
    """Where the names of an old module are: the new module, and new names by old ones."""

    module: str
    renamed: Mapping[str, str]


@cache
def old_modules() -> dict[str, NewPlace]:
    """Return the new place of every old module."""
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {old: NewPlace(new, dict(r.split("=") for r in renamed)) for old, new, *renamed in rows}


class OldModules(MetaPathFinder, Loader):
    """Finds a module by its old name and answers with the names of the new one."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for an old name, None for every other."""
        return ModuleSpec(name, self, is_package=True) if name in old_modules() else None

    def exec_module(self, module: ModuleType) -> None:
        """Forward every name of the old module to the new one."""
        old, place = module.__name__, old_modules()[module.__name__]
        new = importlib.import_module(place.module)

        def forward(name: str) -> Any:
            now = place.renamed.get(name, name)
            found = getattr(new, now)
            if not name.startswith("__"):
                message = f"{old}.{name} is now {place.module}.{now}"
                warnings.warn(message, DeprecationWarning, stacklevel=2)
            return found

        module.__getattr__ = forward  # type: ignore[method-assign]


def install() -> None:
    """Make the old names importable."""
    if not any(isinstance(finder, OldModules) for finder in sys.meta_path):
        sys.meta_path.append(OldModules())
