"""How this program starts Python again, so that modules of the working folder are not imported."""

import os
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def python_command(*arguments: str) -> list[str]:
    """Return the command that runs this Python without searching the working folder (``-P``)."""
    return [sys.executable, "-P", *arguments]


def python_environment() -> dict[str, str]:
    """Return the environment for ``python_command``.

    In a checkout ``PYTHONPATH`` names its root; an installed program is found without. Relative
    folders, which would be the child's working folder or below, are left out of what the user set.
    """
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    checkout = [str(_ROOT)] if (_ROOT / "pyproject.toml").is_file() else []
    paths = [*checkout, *(path for path in given if os.path.isabs(path) and path not in checkout)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)} if paths else environment
