"""Many commands in a moment: each in a process of its own, forked from one that has the imports.

``python -m tests.support.forked_commands`` reads a number and a command line as JSON from each line
of its input, and answers with the number and what became of the command. The usage is that of the
child alone, so it is what a command costs beside starting up, which is the imports and the building
of all commands; memory includes the imports.
"""

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, NamedTuple

from typer.core import TyperGroup
from typer.main import get_command

from servetwin.app import cli
from tests.support.paths import ROOT

LIMIT_S = 60
"""When a child is ended: far beyond what is allowed."""

IMPORTS = (
    "servetwin.sim", "servetwin.app.scenario.scenarios", "servetwin.app.reports.sweep",
    "servetwin.loadtest.run.client", "servetwin.workloads.readers.table",
    "servetwin.workloads.statistics.statistics", "servetwin.sim.explain.explain",
    "servetwin.sim.step_times.tables.table", "servetwin.loadtest.recorded.reading",
    "servetwin.app.verdict.verification", "servetwin.app.calibration.recorded",
    "servetwin.app.reports.verdict", "servetwin.app.reports.report_folders",
    "servetwin.app.scenario.files.sweep_file", "servetwin.app.reports.html.picture_file",
    "servetwin.workloads.plugin_guard", "servetwin.workloads.readers.published_csv",
    "servetwin.workloads.reading", "pyarrow.pandas_compat", "servetwin.app.tasks.capacity",
    "servetwin.app.tasks.load_test", "servetwin.app.tasks.replay", "servetwin.app.tasks.sweep",
    "servetwin.app.tasks.verify",
    "servetwin.app.scenario.table_servers", "servetwin.app.reports.comparison",
    "servetwin.app.reports.workload", "servetwin.policies.routers.prefix_affinity",
    "servetwin.policies.schedulers.static", "servetwin.policies.schedulers.unified",
    "servetwin.workloads.generators.modulated", "servetwin.workloads.readers.mooncake",
    "servetwin.workloads.readers.published_jsonl", "servetwin.workloads.readers.tracelab",
)  # fmt: skip
"""What most commands import when they need it."""


class Outcome(NamedTuple):
    """What a command did; ``code`` is negative where a signal ended it."""

    code: int
    out: str
    err: str
    cpu_s: float
    peak_bytes: int


class ForkedCommands:
    """Runs commands one after the other."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._numbers = count()

    def run(self, arguments: Sequence[object]) -> Outcome:
        """Run one command; the answer to one before it, whose test has ended early, is dropped."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        number = next(self._numbers)
        self._process.stdin.write(json.dumps([number, [str(one) for one in arguments]]) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            answered, outcome = json.loads(line)
            if answered == number:
                return Outcome(*outcome)
        raise AssertionError("the process that forks has ended")


@contextmanager
def forked_commands(folder: Path) -> Iterator[ForkedCommands]:
    """Start the process that forks; its commands run in ``folder``."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked_commands"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    ) as process:  # fmt: skip
        yield ForkedCommands(process)
        assert process.stdin is not None
        process.stdin.close()


def _run(arguments: Sequence[str]) -> Outcome:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            _become(arguments, out.fileno(), err.fileno())
        _, status, usage = os.wait4(child, 0)
        code = os.waitstatus_to_exitcode(status)
        return Outcome(
            code, _text(out), _text(err), usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
        )


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _become(arguments: Sequence[str], out: int, err: int) -> None:
    """Be the command, in the child; never returns."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.argv = ["servetwin", *arguments]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(LIMIT_S)
    code = 70
    try:
        cli.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Serve commands until the input ends."""
    for name in IMPORTS:
        __import__(name)
    vars(cli)["app"] = program = get_command(cli.app)
    assert isinstance(program, TyperGroup)
    list(program.commands.values())  # All commands, built once.
    gc.collect()
    gc.freeze()  # A collection of a child would copy each page that it shares.
    for line in sys.stdin:
        number, arguments = json.loads(line)
        sys.stdout.write(json.dumps([number, _run(arguments)]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
