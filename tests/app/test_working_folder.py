"""Children are this program's own, whatever modules stand in the folder that it runs in."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from servetwin.app.cli import COMMANDS
from servetwin.engine.http.engine_server import EngineServer
from servetwin.engine.serve_options import ServeOptions
from servetwin.loadtest.mock.plan import MockPlan
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.program.child_process import python_command, python_environment
from tests.support.command import servetwin
from tests.support.http_status import answer_of
from tests.support.mock_endpoint import mocked
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
    assert "max_seqs" in beside(strangers, "-m", "servetwin", "sweep", str(SAMPLE), *options)


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
    done = servetwin("sweep", SAMPLE, *options)
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
    ],
    ids=["serve", "dashboard"],
)
def test_servers(command: tuple[str, ...], health: str, hostile: Path) -> None:
    pytest.importorskip("torch" if "serve" in command else "streamlit")
    port = free_port()
    server = subprocess.Popen(
        python_command("-m", "servetwin", *command, str(port)),
        env=python_environment(),
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
