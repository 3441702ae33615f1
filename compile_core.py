"""Compile the core with mypyc: the files in which a simulation spends its time.

What was compiled is kept in the user's cache by the content of the sources, where a checkout finds
it (``servetwin.core_cache``); it is compiled again when a source has changed. ``--modules FOLDER``
also copies it, for a wheel.

The same files run interpreted: both builds give equal results, to the last bit.
"""

import argparse
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from servetwin.core_cache import kept

ROOT = Path(__file__).resolve().parent
SOURCES = ("workloads", "policies", "sim")
COMPILER = "mypy[mypyc]==2.4.1"
"""Another version compiles anew."""
MOST_KEPT = 8
"""So many states of the sources are kept, the latest."""
COMPILED = (
    "policies/*.py",
    "policies/*/*.py",
    "sim/core/*.py",
    "sim/core/*/*.py",
    "sim/step_times/piecewise.py",
    "sim/step_times/step_time.py",
    "workloads/block_ids.py",
    "workloads/graphs/links.py",
    "workloads/graphs/task_graph.py",
)
INTERPRETED = {
    "policies/build.py": "is called once",
    "policies/config.py": "is read when a server is built, and asked for its fields",
    "policies/invariants.py": "checks users' plug-ins, whatever they hand it",
    "policies/prefix/eviction.py": "holds an interface, which plug-ins are compared with",
    "policies/presets.py": "is read once",
    "policies/protocols.py": "holds interfaces, which plug-ins are compared with",
    "policies/registry.py": "is called once",
    "policies/routers/router.py": "holds an interface, which plug-ins are compared with",
    "policies/scheduler_proxy.py": "hands on whatever it is asked",
    "policies/step_record.py": "is a row of a file, read by its fields",
    "sim/core/autoscaling.py": "is asked every few seconds; its rules derive from pydantic",
    "sim/core/environment.py": "derives from SimPy's classes",
    "sim/core/faults.py": "is read once; faults derive from pydantic",
}
"""Files among ``COMPILED`` that stay as they are, each with its reason."""
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


def keep_compiled(root: Path) -> Path:
    """Return the folder with the modules of these sources, compiled now if they were not yet.

    They lie in a folder of another name until they are whole. Raises ``OSError`` where the cache
    cannot be written, or a source has changed meanwhile.
    """
    folder = kept(root)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
            sys.stderr.write("compiling the core, once for these sources: about 100 s\n")
            compile_modules(root, Path(draft, "modules"))
            if kept(root) != folder:
                raise OSError("a source has changed meanwhile")
            Path(draft, "modules").rename(folder)
        by_age = sorted(folder.parent.iterdir(), key=lambda each: each.stat().st_mtime)
        for old in by_age[:-MOST_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return folder


def main() -> None:
    """Compile what has changed; say in a line why that cannot be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=Path, metavar="FOLDER", help="copy the modules there")
    copied_to = parser.parse_args().modules
    try:
        if not (can_compile() or kept(ROOT).is_dir()):
            raise OSError("no C compiler, or no Python.h beside it; CC=gcc names another")
        folder = keep_compiled(ROOT)
    except (OSError, ImportError, KeyboardInterrupt) as error:
        sys.exit(f"the core stays pure Python, with the same results: {error or 'interrupted'}")
    if copied_to:
        shutil.copytree(folder, copied_to.resolve())


if __name__ == "__main__":
    main()
