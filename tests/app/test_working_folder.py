"""Children are this program's own, whatever modules stand in the folder that it runs in."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from servetwin.app.cli import COMMANDS
from servetwin.engine.http.engine_server import EngineServer
from servetwin.engine.serve_options import ServeOptions
from servetwin.loadtest.mock.plan import MockPlan
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.program.child_process import python_command, python_environment
from servetwin.workloads.readers.native import write_trace
from tests.support import recorded_files
from tests.support.command import SERVER, commands, refused, servetwin
from tests.support.http_status import answer_of
from tests.support.mock_endpoint import evenly, mocked, plan, truths
from tests.support.paths import ROOT, SAMPLE

NAMES = ("workloads", "policies", "sim", "engine", "loadtest", "app", "simpy", "streamlit")
"""In the working folder: folders, and ``app.py`` and ``engine.py`` of a stranger beside them."""
PLAIN = ("workloads", "policies", "sim", "engine", "loadtest", "app")
"""Names that the wheel once installed; ``simpy`` and ``streamlit`` are those of dependencies."""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with modules of our names, which leave a mark and fail."""
    folder = tmp_path / "hostile"
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        mark = f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r})"
        (folder / name / "__init__.py").write_text(f"{mark}\nraise SystemExit('hostile')\n")
    monkeypatch.chdir(folder)
    return folder


def assert_nothing_imported(folder: Path) -> None:
    assert not (folder.parent / "imported").exists()


@pytest.fixture
def strangers(tmp_path: Path) -> Path:
    """A working folder with ``app.py``, ``engine.py``, ``sim/`` ... of a stranger."""
    folder = tmp_path / "strangers"
    folder.mkdir()
    mark = (
        f"open({str(tmp_path / 'imported')!r}, 'a').write(__name__)\nraise SystemExit('theirs')\n"
    )
    for name in PLAIN:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(mark)
        (folder / f"{name}.py").write_text(mark)
    return folder


EVERY_HELP = """
import sys
from contextlib import suppress
from servetwin.app import cli

for name in cli.COMMANDS:
    sys.argv = ["servetwin", *name.split(), "--help"]
    with suppress(SystemExit):
        cli.main()
"""


def test_the_help_of_every_command_beside_modules_of_a_stranger(strangers: Path) -> None:
    text = beside(strangers, "-c", EVERY_HELP)
    assert all(f"servetwin {name}" in text for name in COMMANDS)


def test_a_sweep_on_processes_beside_modules_of_a_stranger(strangers: Path) -> None:
    options = ("--limit", "20", "--slo", "ttft=500ms", "--vary", "max_seqs=2,4", "--processes", "2")
    assert "max_seqs" in beside(
        strangers, "-m", "servetwin", "sweep", str(SAMPLE), *SERVER, *options
    )


def beside(folder: Path, *arguments: str) -> str:
    """What Python prints in a folder that ``PYTHONPATH=.`` names too."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([".", str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert_nothing_imported(folder)
    return done.stdout


def test_a_child_that_searches_the_working_folder_would_import_it(hostile: Path) -> None:
    command = [sys.executable, "-c", "import simpy"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    assert (hostile.parent / "imported").exists()


def test_sweep(hostile: Path) -> None:
    options = ("--limit", 20, "--slo", "ttft=500ms", "--vary", "max_seqs=2,4", "--processes", 2)
    done = servetwin("sweep", SAMPLE, *SERVER, *options)
    assert (done.code, "max_seqs" in done.out) == (0, True), done.err
    assert_nothing_imported(hostile)


@pytest.mark.slow
def test_loadtest(hostile: Path) -> None:
    with mocked(MockPlan()) as (server,):
        done = servetwin(
            "loadtest", server.url, "--trace", SAMPLE, "--limit", 6, "--processes", 2,
            "--out", hostile.parent / "run",
        )  # fmt: skip
    assert done.code == 0, done.err
    assert_nothing_imported(hostile)


def test_the_engine_of_calibrate_and_verify(hostile: Path) -> None:
    pytest.importorskip("torch")
    with EngineServer(ServeOptions(model="tiny", policies=PolicyConfig(kv_tokens=1024))) as server:
        assert httpx.get(f"{server.url}/v1/models", trust_env=False).status_code == 200
    assert_nothing_imported(hostile)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "health"),
    [
        (("serve", "--model", "tiny", "--port"), "/v1/models"),
        (("dashboard", "--headless", "--port"), "/_stcore/health"),
        (("dashboard", "--port"), "/_stcore/health"),
    ],
    ids=["serve", "dashboard", "dashboard in a browser"],
)
def test_servers(command: tuple[str, ...], health: str, hostile: Path) -> None:
    """They ask nothing first, also of a user who has never started Streamlit."""
    pytest.importorskip("torch" if "serve" in command else "streamlit")
    port = free_port()
    server = subprocess.Popen(
        python_command("-m", "servetwin", *command, str(port)),
        env={**python_environment(), "HOME": str(hostile), "BROWSER": "true"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert answers(f"http://127.0.0.1:{port}{health}", server)
    finally:
        server.terminate()
        server.wait(30)
    assert_nothing_imported(hostile)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def answers(url: str, server: "subprocess.Popen[bytes]") -> bool:
    for _ in range(600):
        if (status := answer_of(url)) not in (None, 503):  # while it starts
            return status == 200
        assert server.poll() is None, "the server ended"
        time.sleep(0.1)
    return False


def test_the_environment_names_our_root_and_no_relative_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", "lib", "/opt/theirs", str(ROOT)]))
    paths = python_environment()["PYTHONPATH"].split(os.pathsep)
    assert paths == [str(ROOT), "/opt/theirs"]


def test_an_installed_program_adds_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("servetwin.workloads.program.child_process._ROOT", tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert "PYTHONPATH" not in python_environment()


REPLAY = ("replay", SAMPLE, *SERVER, "--limit", 5, "--replications", 0)
COMPARE = ("replay", "compare", "static", "vllm-v1", *REPLAY[1:])
FOLDERS: list[Sequence[object]] = [REPLAY, COMPARE, ("verify",), ("demo",)]
PROFILES: list[Sequence[object]] = [("calibrate",)]
WITHOUT = {"report"}
"""Writes a page, which is made again in a moment."""


def with_option(option: str) -> set[str]:
    """The commands that take an option."""
    found = set()
    for name, command in commands().commands.items():
        inner = {f"{name} {sub}": one for sub, one in getattr(command, "commands", {}).items()}
        for full, each in (inner or {name: command}).items():
            if any(option in parameter.opts for parameter in each.params):
                found.add(full)
    return found


def test_every_command_that_writes_results_says_what_becomes_of_older_ones() -> None:
    assert with_option("--overwrite") == (with_option("--out") | with_option("--plot")) - WITHOUT
    assert with_option("--overwrite") >= {"replay", "loadtest", "loadtest import", "verify", "demo"}


@pytest.mark.parametrize("command", FOLDERS, ids=lambda command: command[0])
def test_a_folder_of_others_is_left_alone(command: Sequence[object], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("")
    for options in ((), ("--overwrite",)):
        said = refused(*command, "--out", tmp_path, *options)
        assert "has files and is no run folder" in said
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("command", PROFILES, ids=lambda command: command[0])
def test_a_file_of_others_is_left_alone(command: Sequence[object], tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("{}")
    for options in ((), ("--overwrite",)):
        assert "is no profile" in refused(*command, "--out", tmp_path / "p.json", *options)
    (tmp_path / "p.json").write_text('{"layouts": {}}')
    assert "--overwrite replaces it" in refused(*command, "--out", tmp_path / "p.json")


def test_a_trace_is_replaced_where_it_is_asked_for(tmp_path: Path) -> None:
    given = ("workload", "generate", "--requests", 5, "--out", tmp_path / "t.jsonl")
    assert servetwin(*given).code == 0
    assert "t.jsonl: is a trace; --overwrite replaces it" in refused(*given)
    assert servetwin(*given, "--seed", 1, "--overwrite").code == 0
    (tmp_path / "t.jsonl").write_text("{}\n")
    assert "is there, and is no trace" in refused(*given, "--overwrite")
    assert (tmp_path / "t.jsonl").read_text() == "{}\n"


@pytest.mark.parametrize("first", [REPLAY, COMPARE], ids=["replay", "compare"])
@pytest.mark.parametrize("second", [REPLAY, COMPARE], ids=["replay", "compare"])
def test_a_run_is_replaced_as_a_whole(
    first: Sequence[object], second: Sequence[object], tmp_path: Path
) -> None:
    assert servetwin(*first, "--out", tmp_path / "run").code == 0
    (tmp_path / "run" / "mine.txt").write_text("")
    assert "has a run" in refused(*second, "--out", tmp_path / "run")
    assert servetwin(*second, "--out", tmp_path / "run", "--overwrite").code == 0
    assert servetwin(*second, "--out", tmp_path / "new").code == 0
    assert names(tmp_path / "run") == names(tmp_path / "new") | {"mine.txt"}


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_run_that_cannot_begin_takes_none_away(tmp_path: Path) -> None:
    assert servetwin(*REPLAY, "--out", tmp_path / "run").code == 0
    before = names(tmp_path / "run")
    refused("replay", tmp_path / "none.jsonl", *SERVER, "--out", tmp_path / "run", "--overwrite")
    refused(*REPLAY, "--batching", "none", "--out", tmp_path / "run", "--overwrite")
    assert names(tmp_path / "run") == before


def test_an_import_replaces_a_run_where_it_is_asked_to(tmp_path: Path) -> None:
    stamps = tmp_path / "measured.jsonl"
    stamps.write_text(recorded_files.engine_stamps())
    given = ("loadtest", "import", stamps, "--out", tmp_path / "run")
    assert servetwin(*given).code == 0
    assert "--overwrite replaces it" in refused(*given)
    assert servetwin(*given, "--overwrite").code == 0


def test_a_load_test_sends_nothing_where_its_folder_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trace(evenly(3, 50, 2), tmp_path / "t.jsonl")
    monkeypatch.chdir(tmp_path)
    with mocked(plan(ttft_ms=5, itl_ms=1)) as (server,):
        given = ("loadtest", server.url, "--trace", "t.jsonl")
        assert servetwin(*given, "--out", "run").code == 0
        assert "has a run; --overwrite" in servetwin(*given, "--out", "run").err
        assert len(truths(server)) == 3
        assert servetwin(*given, "--out", "run", "--overwrite").code == 0
        monkeypatch.setattr(time, "strftime", lambda *_: "loadtest-now")
        assert servetwin(*given).code == servetwin(*given).code == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == [
        "loadtest-now",
        "loadtest-now-2",
    ]
