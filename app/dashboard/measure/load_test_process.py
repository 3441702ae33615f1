"""A load test that the dashboard started: the command line in a process of its own.

In its own process drawing pages never makes the client late. Its folder holds the trace, the
prediction, its output, and its run.
"""

import json
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from servetwin.app.dashboard.kept_runs.folder import new_child
from servetwin.app.dashboard.kept_runs.saved_scenario import save_run
from servetwin.app.dashboard.simulations import SimulatedScenario
from servetwin.sim.records.run import RunError
from servetwin.workloads.errors import os_errors
from servetwin.workloads.program.child_process import python_command, python_environment
from servetwin.workloads.readers.native import write_trace

MEASURED, PREDICTED = "measured", "predicted"
_ANSWER_COLUMNS = ["sent_s", "ttft_s", "tpot_s", "failure"]
_STATE = {"elapsed_s": 0.0, "total": 0, "sent": 0, "ended": 0, "failed": 0}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The endpoint to test; the key goes into the process' environment and nowhere else."""

    url: str
    model: str = ""
    dialect: str = ""
    api_key: str = field(default="", repr=False)

    def options(self) -> list[str]:
        """Return the options of the command line."""
        named = {"--model": self.model, "--dialect": self.dialect}
        return [part for option, value in named.items() if value for part in (option, value)]


@dataclass(slots=True)
class LoadTestProcess:
    """One load test, running or ended."""

    folder: Path
    process: "subprocess.Popen[bytes]"
    state: dict[str, Any] = field(default_factory=lambda: dict(_STATE))
    answers: list[dict[str, Any]] = field(default_factory=list)
    _read_bytes: int = 0

    @property
    def running(self) -> bool:
        """Return whether it is running."""
        return self.process.poll() is None

    def stop(self) -> None:
        """Stop it as Ctrl-C does: finished requests are kept."""
        if self.running:
            self.process.send_signal(signal.SIGINT)

    def refresh(self) -> None:
        """Read the progress written since the last call."""
        path = self.folder / "live.jsonl"
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._read_bytes)
            for line in file:
                if line.endswith(b"\n"):  # The last one may be half written.
                    self._read_bytes += len(line)
                    self._take(json.loads(line))

    def answered(self) -> pd.DataFrame:
        """Return the answers so far as requests of a run; latencies count from the sending."""
        frame = pd.DataFrame(self.answers, columns=_ANSWER_COLUMNS)
        status = frame["failure"].isna().map({True: "finished", False: "failed"})
        numbers = frame[["sent_s", "ttft_s", "tpot_s"]].astype(float)
        requests = numbers.rename(columns={"sent_s": "scheduled_s"})
        return requests.assign(status=status, request_id=frame.index.map("answer {}".format))

    def output(self) -> str:
        """Return all that it printed."""
        path = self.folder / "output.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def failure(self) -> str | None:
        """Return why it ended with an error; None where it did not."""
        if self.running or self.process.returncode == 0:
            return None
        lines = [line for line in self.output().splitlines() if line.startswith("servetwin: ")]
        code = self.process.returncode
        return lines[-1].removeprefix("servetwin: ") if lines else f"ended with exit code {code}"

    @property
    def has_run(self) -> bool:
        """Return whether there is a run folder."""
        return (self.folder / MEASURED / "summary.json").exists()

    def _take(self, progress: dict[str, Any]) -> None:
        self.answers += progress.pop("answers")
        self.state = progress


def start(
    root: Path, endpoint: Endpoint, outcome: SimulatedScenario, options: Sequence[str]
) -> LoadTestProcess:
    """Send the scenario's trace to an endpoint, beside its prediction.

    Raises ``RunError`` where the folder cannot be written.
    """
    folder = new_child(root, time.strftime("loadtest-%Y%m%d-%H%M%S"))
    with os_errors(RunError, f"{folder}: cannot be written"):
        folder.mkdir(parents=True)
        write_trace(outcome.trace, folder / "trace.jsonl")
        save_run(folder, PREDICTED, outcome)
        return LoadTestProcess(folder, _launch(folder, endpoint, options))


def _launch(folder: Path, endpoint: Endpoint, options: Sequence[str]) -> "subprocess.Popen[bytes]":
    command = python_command(
        "-m", "servetwin", "loadtest", endpoint.url, *endpoint.options(), *options,
        "--trace", str(folder / "trace.jsonl"), "--out", str(folder / MEASURED),
        "--against", str(folder / PREDICTED), "--live", str(folder / "live.jsonl"),
    )  # fmt: skip
    environment = python_environment()
    if endpoint.api_key:
        environment["OPENAI_API_KEY"] = endpoint.api_key
    else:
        environment.pop("OPENAI_API_KEY", None)  # Not sent to whatever a browser names.
    with (folder / "output.txt").open("wb") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
