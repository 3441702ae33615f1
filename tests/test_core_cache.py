"""A checkout runs the compiled core of exactly its sources, else the sources, and says which."""

import ast
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import compile_core
from servetwin.core_cache import PURE, SOURCES, CompiledCore, digest, kept
from tests.support.paths import ROOT

NAME = "servetwin.policies.sequence"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the sources, beside an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "checkout"
    for source in SOURCES:
        shutil.copytree(ROOT / source, root / source, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "compile_core.py", root)
    return root


def put_module(root: Path) -> Path:
    """Keep a file that a checkout takes for a compiled module; return it."""
    file = kept(root) / (NAME.replace(".", "/") + EXTENSION_SUFFIXES[0])
    file.parent.mkdir(parents=True)
    file.touch()
    return file


def test_a_module_of_these_sources_is_found(checkout: Path) -> None:
    assert CompiledCore(checkout).find_spec(NAME) is None
    file = put_module(checkout)
    spec = CompiledCore(checkout).find_spec(NAME)
    assert spec is not None
    assert spec.origin == str(file)
    for other in ("servetwin.policies", "servetwin.policies.build", "servetwin.app.cli", "json"):
        assert CompiledCore(checkout).find_spec(other) is None


@pytest.mark.parametrize("source", ["compile_core.py", *(f"{each}/new.py" for each in SOURCES)])
def test_of_other_sources_no_module_is_found(checkout: Path, source: str) -> None:
    put_module(checkout)
    with (checkout / source).open("a") as file:
        file.write("#")
    assert CompiledCore(checkout).find_spec(NAME) is None


def test_the_place_of_a_source_counts(checkout: Path) -> None:
    before = digest(checkout)
    (checkout / "policies/batch.py").rename(checkout / "sim/core/batch.py")
    assert digest(checkout) != before


def test_an_interrupted_compilation_keeps_nothing(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_half(root: Path, folder: Path) -> None:
        folder.mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(compile_core, "compile_modules", compile_half)
    with pytest.raises(KeyboardInterrupt):
        compile_core.keep_compiled(checkout)
    assert not list(kept(checkout).parent.iterdir())


def test_a_source_that_changes_meanwhile_is_not_kept(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(root: Path, folder: Path) -> None:
        folder.mkdir()
        (root / "policies/batch.py").write_text("")

    monkeypatch.setattr(compile_core, "compile_modules", change)
    with pytest.raises(OSError, match="a source has changed"):
        compile_core.keep_compiled(checkout)
    assert not list(kept(checkout).parent.iterdir())


def test_the_latest_compilations_are_kept(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_core, "compile_modules", lambda root, folder: folder.mkdir())
    folders = []
    for number in range(compile_core.MOST_KEPT + 2):
        (checkout / "policies/new.py").write_text(f"{number}")
        folders.append(compile_core.keep_compiled(checkout))
        os.utime(folders[-1], (number, number))
    assert [folder.is_dir() for folder in folders] == [False, False, *[True] * (len(folders) - 2)]
    assert compile_core.keep_compiled(checkout) == folders[-1]


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env={**os.environ, PURE: "", **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_without_a_compiler_one_line_says_so(tmp_path: Path) -> None:
    done = run({"CC": "nowhere-cc", "XDG_CACHE_HOME": str(tmp_path)}, "compile_core.py")
    assert done.returncode == 1
    assert done.stderr == (
        "the core stays pure Python, with the same results: no C compiler, or no Python.h beside "
        "it; CC=gcc names another\n"
    )


def test_a_cache_that_cannot_be_written_leaves_pure_python(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.touch()
    done = run({"CC": "true", "XDG_CACHE_HOME": str(taken)}, "compile_core.py")
    assert done.returncode == 1
    assert done.stderr.startswith("the core stays pure Python, with the same results: [Errno 20]")
    assert done.stderr.count("\n") == 1
    shown = run({"XDG_CACHE_HOME": str(taken)}, "-m", "servetwin", "--version").stdout
    assert "(pure Python: these sources are not compiled, `make core` does that)" in shown


def test_a_half_built_folder_of_a_killed_process_is_not_taken(tmp_path: Path) -> None:
    draft = tmp_path / "servetwin" / "core" / "tmpkilled" / "modules" / "servetwin" / "policies"
    draft.mkdir(parents=True)
    (draft / f"lockstep{EXTENSION_SUFFIXES[0]}").touch()
    shown = run({"XDG_CACHE_HOME": str(tmp_path)}, "-m", "servetwin", "--version").stdout
    assert "(pure Python: these sources are not compiled" in shown


def test_the_variable_turns_it_off() -> None:
    shown = run({PURE: "1"}, "-m", "servetwin", "--version").stdout
    assert f"(pure Python: {PURE} is set)" in shown


def test_all_that_compiled_modules_import_is_among_the_sources() -> None:
    todo, seen = {ROOT / name for name in compile_core.modules()}, set()
    while todo:
        path = todo.pop()
        seen.add(path)
        imported = _imported(path)
        todo |= imported - seen
    outside = [
        path for path in seen
        if not any(path.is_relative_to(ROOT / source) for source in SOURCES)
    ]  # fmt: skip
    assert outside == []


def _imported(path: Path) -> set[Path]:
    nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)]
    modules = {node.module or "" for node in nodes}
    modules |= {f"{node.module}.{alias.name}" for node in nodes for alias in node.names}
    stems = [
        ROOT / module.removeprefix("servetwin.").replace(".", "/")
        for module in modules if module.startswith("servetwin.")
    ]  # fmt: skip
    return {file for stem in stems if (file := stem.with_suffix(".py")).is_file()}
