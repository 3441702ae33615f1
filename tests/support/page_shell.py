"""Runs the command blocks of a page of the documentation, as a reader would."""

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import httpx

from tests.support.command import servetwin
from tests.support.paths import ROOT

SERVE = "servetwin serve"
_STARTS_WITHIN_S = 60.0
_PORT = ":8000"
"""Where the pages say that a server is; the tests take a free port."""


def command_lines(block: str) -> list[str]:
    """The commands of a block, each on one line."""
    return [line for line in re.sub(r"\\\n\s*", "", block).splitlines() if line.strip()]


class PageShell:
    """One page's terminal, in ``folder``, with another one beside it for a server.

    ``servetwin`` runs in this process, and predicts by two replications, unless ``as_written``:
    then bash runs the blocks.
    """

    def __init__(self, folder: Path, *, as_written: bool = False) -> None:
        self._folder = folder
        self._as_written = as_written
        self._server: subprocess.Popen[bytes] | None = None
        self._url = ""

    def __enter__(self) -> "PageShell":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop_server()

    def run(self, block: str) -> str:
        """What a block prints; ``AssertionError`` where a command fails."""
        lines = command_lines(block)
        if not all(line.startswith("servetwin ") for line in lines):
            return self._bash(block)
        return "".join(map(self._run_line, lines))

    def _run_line(self, line: str) -> str:
        if line.startswith(SERVE):
            self._serve(shlex.split(line, comments=True)[2:])
            return ""
        if self._as_written:
            return self._bash(line)
        arguments = shlex.split(self._at_port(line), comments=True)[1:]
        if arguments[0] == "replay" and "--replications" not in arguments:
            arguments += ["--replications", "2"]
        done = servetwin(*arguments)
        assert done.code == 0, f"{line}: exit code {done.code}: {done.err}"
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
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m app.cli "$@"\n')
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
            [sys.executable, "-m", "app.cli", "serve", *arguments, "--port", str(port)],
            cwd=self._folder,
            env=self._environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait_until_healthy()

    def _wait_until_healthy(self) -> None:
        assert self._server is not None
        give_up_s = time.monotonic() + _STARTS_WITHIN_S
        with httpx.Client(base_url=self._url, trust_env=False, timeout=1) as client:
            while time.monotonic() < give_up_s:
                assert self._server.poll() is None, "the server ended"
                try:
                    if client.get("/health").status_code == 200:
                        return
                except httpx.TransportError:
                    time.sleep(0.05)
        raise AssertionError("the server did not start")

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait(30)
            self._server = None
