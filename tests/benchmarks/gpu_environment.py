"""An environment for ``make gpu`` on a bare machine, which sees the torch of that machine.

``python3 -m tests.benchmarks.gpu_environment FOLDER [--wheels DIR]`` makes a virtual
environment in FOLDER and installs what is missing: from the wheels in DIR, else from the package
index. It needs nothing but the standard library, and leaves torch as it is.
"""

import argparse
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
OLDEST_PYTHON = (3, 11)
PIP_OPTIONS = ("-q", "--disable-pip-version-check")
FOR_TESTS = ("hypothesis", "pytest", "pytest-timeout", "transformers")


class EnvironmentIncomplete(Exception):
    """What is missing on this machine, and how to add it."""


def requirements() -> tuple[list[str], list[str]]:
    """What the engine and the command line need beside torch, and what the GPU tests need more."""
    import tomllib  # Python 3.11 has it; ``prepare`` says so where it is older

    project = tomllib.loads(PROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    engine = [line for line in extras["engine"] if _name(line) != "torch"]
    for_tests = [line for line in extras["test"] if _name(line) in FOR_TESTS]
    return [*project["dependencies"], *engine], for_tests


def prepare(folder: Path, wheels: Path | None = None) -> list[str]:
    """Make the environment complete; return what its GPU tests still lack.

    Raises ``EnvironmentIncomplete`` where torch or a package that the engine needs is missing.
    """
    if sys.version_info < OLDEST_PYTHON:
        raise EnvironmentIncomplete(
            f"{sys.executable} is Python {sysconfig.get_python_version()}; it takes 3.11 or newer: "
            "make gpu GPU_PYTHON=/path/to/python3"
        )
    if find_spec("torch") is None:
        raise EnvironmentIncomplete(
            f"{sys.executable} has no torch. Install a CUDA build of it, or name an interpreter "
            "that has one: make gpu GPU_PYTHON=/path/to/python3"
        )
    if wheels and not wheels.is_dir():
        raise EnvironmentIncomplete(f"WHEELS={wheels}: no such folder")
    python = make_environment(folder)
    needed, for_tests = requirements()
    said = install(python, needed, wheels)
    if missing := missing_of(python, needed):
        names = " ".join(f"'{line}'" for line in missing)
        raise EnvironmentIncomplete(
            f"missing: {', '.join(missing)}. Without a network, run this elsewhere, for the same "
            f"Python and platform, and bring the folder along: pip download -d wheels {names}; "
            f"then: make gpu WHEELS=wheels\n{said}"
        )
    install(python, for_tests, wheels)
    return missing_of(python, for_tests)


def make_environment(folder: Path) -> Path:
    """Make the environment unless it exists; return its interpreter.

    It also sees the packages of this interpreter where that is one of a virtual environment itself.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, system_site_packages=True, with_pip=False)
    places = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    variables = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", "venv", vars=variables))
    (site / "outer-packages.pth").write_text("".join(f"{place}\n" for place in places))
    return python


def install(python: Path, wanted: Sequence[str], wheels: Path | None) -> str:
    """Install what is not there; return what pip said, for an error."""
    if not missing_of(python, wanted):
        return ""
    if missing_of(python, ["pip"]):
        _run(python, "-m", "ensurepip")
    source = ["--no-index", "--find-links", str(wheels)] if wheels else ["--retries", "1"]
    return _run(python, "-m", "pip", "install", *PIP_OPTIONS, *source, *wanted)[1]


def missing_of(python: Path, wanted: Sequence[str]) -> list[str]:
    """The requirements whose package the interpreter does not have, whatever the version."""
    code = (
        "import sys\n"
        "from importlib.metadata import PackageNotFoundError, version\n"
        "for name in sys.argv[1:]:\n"
        "    try: version(name)\n"
        "    except PackageNotFoundError: sys.stdout.write(name + '\\n')\n"
    )
    absent = _run(python, "-c", code, *map(_name, wanted))[1].split()
    return [line for line in wanted if _name(line) in absent]


def _name(requirement: str) -> str:
    return re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0]


def _run(python: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run([python, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare the environment; 2 where something is missing, with a line that says what."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wheels", type=Path, help="folder of wheels, for want of a network")
    given = parser.parse_args(arguments)
    try:
        missing = prepare(given.folder, given.wheels)
    except EnvironmentIncomplete as error:
        sys.stderr.write(f"make gpu: {error}\n")
        return 2
    if missing:
        sys.stderr.write(f"make gpu: the GPU tests will fail: no {', '.join(missing)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
