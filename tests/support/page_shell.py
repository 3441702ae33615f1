"""Runs the command blocks of a page of the documentation, as a reader would."""

import contextlib
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest.mock import patch

from tests.support.command import over, servetwin
from tests.support.effort import FULL
from tests.support.http_status import answer_of
from tests.support.paths import ROOT

SERVE = "servetwin serve"
_STARTS_WITHIN_S = 180.0
_PORT = ":8000"
"""Where the pages say that a server is; the tests take a free port."""


_STEP = re.compile(r"cat > \S+ <<'(\w+)'\n(?:.*\n)*?\1\n|(?:.*\\\n)*.*\n")
"""A file that a block writes, or a command with the lines that continue it."""
_ALONE = ("servetwin ", "python3 ", "cat > ")
"""Commands that leave nothing in their shell which a later one could need."""
_FEW_REPLICATIONS: dict[str, tuple[str, ...]] = {
    "replay": ("--replications", "2"),
    "capacity": () if FULL else ("--replications", "2", "--limit", "60"),
}
"""Options of a command that take the place of its own."""
_QUOTED_OR_COMMENT = re.compile(r"'[^']*'|\"[^\"$`]*\"|(?<=\s)#.*")


def steps(block: str) -> list[str]:
    """The commands of a block that can run one by one, or the block."""
    found = [step[0] for step in _STEP.finditer(block + "\n") if step[0].strip()]
    return found if all(step.startswith(_ALONE) for step in found) else [block]


def needs_bash(line: str) -> bool:
    """Whether a line is more than a ``servetwin`` and its arguments."""
    words = _QUOTED_OR_COMMENT.sub("", line)
    return not line.startswith("servetwin ") or re.search(r"[|&;<>$`*?~(){}\n]", words) is not None


def command_lines(block: str) -> list[str]:
    """The commands of a block, each on one line."""
    return [line for line in re.sub(r"\\\n\s*", "", block).splitlines() if line.strip()]


def _says_how_often(arguments: list[str]) -> bool:
    """Return whether a command keeps its replications."""
    return FULL and "--replications" in arguments


class PageShell:
    """One page's terminal, in ``folder``, with another one beside it for a server.

    A plain ``servetwin`` runs in this process; bash runs the rest. Predictions are by few
    replications, unless ``as_written``.
    """

    def __init__(self, folder: Path, *, as_written: bool = False) -> None:
        self._folder = folder
        self._as_written = as_written
        self._server: subprocess.Popen[bytes] | None = None
        self._url = ""
        self._modules = frozenset(sys.modules)

    def __enter__(self) -> "PageShell":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop_server()
        for name in sys.modules.keys() - self._modules:
            if name.startswith("servetwin_plugin_"):
                del sys.modules[name]

    def run(self, block: str) -> str:
        """What a block prints; ``AssertionError`` where a command fails."""
        return "".join(map(self._run_step, steps(block)))

    def _run_step(self, step: str) -> str:
        line = "\n".join(command_lines(step))
        if line.startswith(SERVE):
            self._serve(shlex.split(line, comments=True)[2:])
            return ""
        return self._bash(step) if needs_bash(line) else self._here(line)

    def _here(self, line: str) -> str:
        """What a command prints that runs in this process, and leaves it as it was."""
        arguments: list[Any] = shlex.split(self._at_port(line), comments=True)[1:]
        if not (self._as_written or _says_how_often(arguments)):
            arguments = over(arguments, _FEW_REPLICATIONS.get(arguments[0], ()))
        with (
            contextlib.chdir(self._folder),
            patch.dict(os.environ, self._environment()),
            warnings.catch_warnings(),
        ):
            done = servetwin(*arguments)
        missed = done.err.rpartition("servetwin: ")[2]
        is_slow = done.code == 1 and missed.startswith("requests within the SLO")
        assert done.code == 0 or is_slow, f"{line}: exit code {done.code}: {done.err}"
        return done.out + done.err

    def _bash(self, block: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._at_port(block)],
            cwd=self._folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{block}: exit code {done.returncode}: {done.stdout}"
        return done.stdout

    def _environment(self) -> dict[str, str]:
        """With a ``servetwin`` that is this checkout, whatever is installed."""
        commands = self._folder / ".commands"
        commands.mkdir(exist_ok=True)
        command = commands / "servetwin"
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m servetwin "$@"\n')
        command.chmod(0o755)
        paths = f"{commands}:{os.environ['PATH']}"
        return {**os.environ, "PATH": paths, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}

    def _at_port(self, text: str) -> str:
        return text.replace(f"http://127.0.0.1{_PORT}", self._url) if self._url else text

    def _serve(self, arguments: list[str]) -> None:
        """Serve in the other terminal, instead of what is served there."""
        self._stop_server()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        self._server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "servetwin",
                "serve",
                *map(str, over(arguments, ("--port", port))),
            ],
            cwd=self._folder,
            env=self._environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait_until_healthy()

    def _wait_until_healthy(self) -> None:
        assert self._server is not None
        give_up_s = time.monotonic() + _STARTS_WITHIN_S
        while time.monotonic() < give_up_s:
            assert self._server.poll() is None, "the server ended"
            if answer_of(f"{self._url}/health") == 200:
                return
            time.sleep(0.05)
        raise AssertionError("the server did not start")

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait(30)
            self._server = None
