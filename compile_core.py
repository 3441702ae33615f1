"""Compile the core with mypyc: the files in which a simulation spends its time.

``python compile_core.py FOLDER`` makes FOLDER a copy of this checkout in which compiled modules lie
beside their sources; Python takes the compiled ones there. The checkout itself stays as it is. What
was compiled is kept beside FOLDER, and compiled again when a source has changed. With ``--modules``
FOLDER gets the compiled modules alone.

The same files run interpreted: both builds give equal results, to the last bit.
"""

import argparse
import hashlib
import os
import shutil
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent
SOURCES = ("workloads", "policies", "sim")
"""Folders whose files decide what is compiled, and how."""
COMPILED = (
    "policies/*.py",
    "policies/*/*.py",
    "sim/core/*.py",
    "sim/step_times/piecewise.py",
    "sim/step_times/step_time.py",
)
INTERPRETED = {
    "policies/build.py": "is called once",
    "policies/config.py": "is read when a server is built, and asked for its fields",
    "policies/invariants.py": "checks users' plug-ins, whatever they hand it",
    "policies/prefix/eviction.py": "holds an interface, which plug-ins are compared with",
    "policies/presets.py": "is read once",
    "policies/protocols.py": "holds interfaces, which plug-ins are compared with",
    "policies/registry.py": "is called once",
    "policies/step_record.py": "is a row of a file, read by its fields",
    "sim/core/environment.py": "derives from SimPy's classes",
}
"""Files among ``COMPILED`` that stay as they are, each with its reason."""
MADE = {"build", "dist", "mutants", "results", "runs"}
"""Folders of a checkout with what was made from it."""
GROUP = "servetwin"
MYPY_OPTIONS = (
    "--config-file=",  # an environment that builds a wheel lacks the packages with the types
    "--no-site-packages",
    "--ignore-missing-imports",
    "--follow-imports=silent",
    "--explicit-package-bases",
)
EXACT = ["-ffp-contract=off"]
"""A product and a sum are rounded one after the other, as Python does it."""


def modules(root: Path = ROOT) -> list[str]:
    """Return the files to compile, relative to ``root``."""
    found = {path.relative_to(root).as_posix() for glob in COMPILED for path in root.glob(glob)}
    return sorted(name for name in found - set(INTERPRETED) if not name.endswith("__init__.py"))


def digest(root: Path = ROOT) -> str:
    """Return a name for all that the compiled modules depend on."""
    files = [path for folder in SOURCES for path in sorted((root / folder).rglob("*.py"))]
    found = hashlib.sha256(sysconfig.get_config_var("EXT_SUFFIX").encode())
    for path in [root / "compile_core.py", *files]:
        found.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def can_compile() -> bool:
    """Return whether there are a C compiler and the headers of this Python."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return shutil.which(compiler) is not None and headers.is_file()


def compile_modules(root: Path, folder: Path) -> None:
    """Compile the modules of the checkout ``root`` into ``folder``."""
    from mypyc.build import mypycify
    from setuptools import setup

    c_files = folder.with_name(f"{folder.name}-c")
    os.chdir(_package(root, folder.with_name(f"{folder.name}-sources")))
    extensions = mypycify(
        [*MYPY_OPTIONS, *(f"{GROUP}/{name}" for name in modules(root))],
        group_name=GROUP,
        debug_level="0",
        target_dir=str(c_files),
    )
    for extension in extensions:
        extension.extra_compile_args += EXACT if os.name == "posix" else []
    os.chdir(c_files)  # setuptools reads no project here
    places = ["--build-lib", str(folder), "--build-temp", str(c_files)]
    setup(name=GROUP, ext_modules=extensions, script_args=["-q", "build_ext", *places])
    os.chdir(root)
    shutil.rmtree(c_files)
    shutil.rmtree(folder.with_name(f"{folder.name}-sources"))


def _package(root: Path, folder: Path) -> Path:
    """Make ``folder`` hold the package by the name under which it is imported; return it."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / GROUP).mkdir(parents=True)
    for path in [root / GROUP / "__init__.py", *(root / name for name in SOURCES)]:
        (folder / GROUP / path.name).symlink_to(path)
    return folder


def copy_checkout(root: Path, folder: Path, compiled: Path) -> None:
    """Make ``folder`` a copy of ``root`` with the modules in ``compiled``."""

    def left_out(place: str, names: list[str]) -> list[str]:
        at_root = Path(place) == root
        return [n for n in names if n == "__pycache__" or (at_root and (n[0] == "." or n in MADE))]

    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root, folder, ignore=left_out)
    shutil.copytree(compiled / GROUP, folder, dirs_exist_ok=True)
    for library in compiled.glob("*.*"):
        shutil.copy(library, folder)
    traces, link = root.parent / "shared", folder.parent / "shared"
    if traces.is_dir() and not link.exists():  # the copy finds them where the checkout does
        link.symlink_to(traces)


def main() -> None:
    """Compile what has changed, and make the folder anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--modules", action="store_true", help="no copy of the checkout")
    given = parser.parse_args()
    if not can_compile():
        sys.exit("compile_core.py: no C compiler, or no Python.h beside it; CC=gcc names another")
    folder = given.folder.resolve()
    if given.modules:
        compile_modules(ROOT, folder)
        return
    compiled = folder.with_name(f"{folder.name}-modules")
    stamp = folder.with_name(f"{folder.name}-digest")
    now = digest()
    if not (stamp.is_file() and stamp.read_text() == now):
        shutil.rmtree(compiled, ignore_errors=True)
        compile_modules(ROOT, compiled)
        stamp.write_text(now)
    copy_checkout(ROOT, folder, compiled)


if __name__ == "__main__":
    main()
