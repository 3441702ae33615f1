"""The build hook of wheels: where a C compiler is there, the core is compiled.

Without one, or with ``SERVETWIN_PURE=1``, the wheel is pure Python. So is an editable install: it
runs the sources themselves.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledCore(BuildHookInterface[Any]):  # type: ignore[misc]  # hatchling is not installed here
    """Adds the compiled modules to a wheel, beside their sources."""

    def dependencies(self) -> list[str]:
        """Return what compiling needs; pip's command says for which kind of install it asks."""
        asked_for_editable = "get_requires_for_build_editable" in sys.argv
        return [_compile_core().COMPILER] if _wanted() and not asked_for_editable else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name the modules to the builder; a wheel that has any is of one platform."""
        self._folder = Path(tempfile.mkdtemp())
        if version == "editable" or not _wanted():
            return
        modules = self._folder / "modules"
        done = subprocess.run(
            [sys.executable, "compile_core.py", "--modules", str(modules)],
            cwd=self.root, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            self.app.display_info(f"{done.stderr}\nNot compiled: the wheel is pure Python.")
            return
        found = [path for path in modules.rglob("*") if path.is_file()]
        names = {str(path): path.relative_to(modules).as_posix() for path in found}
        build_data["force_include"].update(names)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled: the wheel has it."""
        shutil.rmtree(self._folder)


def _wanted() -> bool:
    """Return whether to compile."""
    return bool(_compile_core().can_compile()) and not os.environ.get("SERVETWIN_PURE")


def _compile_core() -> ModuleType:
    """Return ``compile_core``, which is beside this file; hatchling loads this one by its path."""
    sys.path.insert(0, str(Path(__file__).parent))
    return import_module("compile_core")
