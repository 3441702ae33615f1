"""Lock the test environment (``make lock``).

``python tests/support/lock.py constraints.txt`` asks pip what an empty environment would get from
the ranges and extras of ``pyproject.toml``, and writes one exact version for every package.
"""

import json
import platform
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
LOCKED_FOR = ("Linux", "x86_64", "3.11")
HEAD = """\
# The versions that the tests run with, on Linux x86-64 with Python 3.11: every extra of
# pyproject.toml and all that it needs. `make lock` writes this file anew, with the newest versions
# that the ranges allow. torch names its CUDA packages exactly, so they are not repeated here.
"""


def canonical(name: str) -> str:
    """Return the name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(packages: Iterable[Mapping[str, str]]) -> list[str]:
    """Return ``name==version`` of each package, sorted, without a local build's tag.

    Ours is left out, and triton, of which each build of torch names the version that it wants.
    """
    versions = {canonical(one["name"]): one["version"].partition("+")[0] for one in packages}
    kept = sorted(versions.keys() - {"servetwin", "triton"})
    return [f"{name}=={versions[name]}" for name in kept]


def resolved() -> list[Mapping[str, str]]:
    """Return the metadata of the packages that pip would install into an empty environment."""
    project = tomllib.loads(PROJECT.read_text())
    extras = ",".join(project["project"]["optional-dependencies"])
    fixed = project["tool"]["uv"]["constraint-dependencies"]
    options = ("--dry-run", "--ignore-installed", "--quiet", "--report", "-")
    command = [sys.executable, "-m", "pip", "install", *options, f"{PROJECT.parent}[{extras}]"]
    done = subprocess.run([*command, *fixed], stdout=subprocess.PIPE, text=True, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return [one["metadata"] for one in report["install"]]


def main() -> None:
    """Write the lock to the path that was given."""
    here = (platform.system(), platform.machine(), ".".join(platform.python_version_tuple()[:2]))
    if here != LOCKED_FOR:
        raise SystemExit(f"make lock is for {' '.join(LOCKED_FOR)}; this is {' '.join(here)}")
    Path(sys.argv[1]).write_text(HEAD + "\n".join(pins(resolved())) + "\n")


if __name__ == "__main__":
    main()
