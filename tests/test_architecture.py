"""The house keeps its arrows, and a command line that answers at once."""

import ast
import subprocess
import sys
from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.command import SERVER
from tests.support.paths import ROOT, SAMPLE

MAY_IMPORT = {
    "workloads": set[str](),
    "policies": {"workloads"},
    "sim": {"policies", "workloads"},
    "engine": {"policies", "workloads"},
    "loadtest": {"workloads", "sim"},
    "app": {"workloads", "policies", "sim", "engine", "loadtest"},
}


MOST_LINES = 400
MOST_FILES_IN_A_FOLDER = 15


def imported_roots(path: Path) -> set[str]:
    """Return what a file imports: folders of ours by their names, other packages by theirs."""
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import) or (
            isinstance(node, ast.ImportFrom) and node.module == "servetwin"
        ):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.removeprefix("servetwin.").split(".")[0] for name in names}


LOADTEST_ROOMS = [
    "options",
    "credentials",
    "redaction",
    "dialects",
    "body",
    "endpoint",
    "http",
    "stream",
    "plan",
    "report",
    "recorded",
    "run",
    "capture",
    "sweep",
    "mock",
]
"""The files and folders of ``loadtest``: each imports only from itself and those before it."""


def modules_of(folder: str) -> dict[str, Path]:
    """Return the files of a folder by the names under which they are imported."""
    paths = (path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py"))
    names = {".".join(("servetwin", *path.with_suffix("").parts)): path for path in paths}
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


def imported_modules(path: Path, known: Collection[str]) -> set[str]:
    """Return the imports of a file among ``known``: also inside functions and for types only."""
    names = set[str]()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names & set(known)


def test_imports_are_seen() -> None:
    """The tests below would hold for a reader of imports that finds none."""
    modules = modules_of("sim")
    run = imported_modules(modules["servetwin.sim.core.simulate"], modules)
    assert "servetwin.sim.core.replica" in run
    assert {"sim", "policies", "simpy"} <= imported_roots(ROOT / "sim/core/replica.py") | {"simpy"}


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """Return modules that import each other, the first again at the end; none without a circle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_circle_is_seen() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_files_import_each_other_in_no_circle(folder: str) -> None:
    modules = modules_of(folder)
    imports = {name: imported_modules(path, modules) - {name} for name, path in modules.items()}
    assert circle(imports) == []


def test_rooms_of_the_load_tester_import_downwards_only() -> None:
    modules = modules_of("loadtest")
    rooms = {name: name.split(".")[2] for name in modules if name.count(".") > 1}
    place = {name: LOADTEST_ROOMS.index(room) for name, room in rooms.items()}
    for name, path in modules.items():
        for imported in imported_modules(path, place):
            assert place[imported] <= place.get(name, -1), f"{name} imports {imported}"


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_files_and_folders_are_read_at_a_glance(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*.py") if path.name != "__init__.py"]
    long = [path for path in files if path.read_text().count("\n") > MOST_LINES]
    rooms = [path.parent for path in files]
    crowded = {room for room in rooms if rooms.count(room) > MOST_FILES_IN_A_FOLDER}
    lonely = {room for room in rooms if rooms.count(room) == 1 and not folders_in(room)}
    assert (long, crowded, lonely) == ([], set(), set())


def folders_in(room: Path) -> list[Path]:
    return [path.parent for path in room.glob("*/*.py")]


def test_a_package_hands_on_names_and_defines_none() -> None:
    for folder in MAY_IMPORT:
        for path in (ROOT / folder).rglob("__init__.py"):
            for node in ast.parse(path.read_text()).body:
                assert not isinstance(node, ast.FunctionDef | ast.ClassDef), path


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_follow_the_arrows(folder: str) -> None:
    allowed = MAY_IMPORT[folder] | {folder}
    for path in (ROOT / folder).rglob("*.py"):
        roots = imported_roots(path)
        assert roots & set(MAY_IMPORT) <= allowed, path
        assert folder == "engine" or "torch" not in roots, path
        assert "tests" not in roots, path


def test_the_command_line_loads_nothing_heavy() -> None:
    heavy = ["torch", "pandas", "scipy", "streamlit", "numpy", "simpy", "httpx", "pydantic"]
    code = f"import sys, servetwin.app.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_server_starts_its_core_before_it_loads_frames() -> None:
    """They take a third of what comes before the core imports torch."""
    command = "servetwin.app.commands.serve, servetwin.engine.core.core_process"
    code = f"import sys, {command}; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
def test_simulator_and_load_tester_work_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "sys.argv = ['servetwin', 'replay', *sys.argv[1:], '--limit', '20', '--json']\n"
        "import servetwin.loadtest.run.client, servetwin.app.tasks.verify\n"
        "from servetwin.app.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(SAMPLE), *SERVER], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert '"finished": 20' in done.stdout
