"""The truth: what the mock really did for each request, on the clock of all local processes."""

import json
import time
from array import array
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from servetwin.workloads.errors import MockError, os_errors

RUNNING = "running"


@dataclass(slots=True)
class Truth:
    """The truth of one request; stamps are ``time.perf_counter_ns``.

    ``arrival_ns`` is when its first byte came. For each write that completed tokens, ``tokens`` has
    their number, ``due_ns`` when they should have been written, ``written_ns`` when they were.
    ``outcome`` is complete, cut, silent, status NNN, left (the client closed), stopped (the server
    did), or running.
    """

    request_id: str
    arrival_ns: int
    max_tokens: int
    tokens: list[int] = field(default_factory=list)
    due_ns: "array[int]" = field(default_factory=lambda: array("q"))
    written_ns: "array[int]" = field(default_factory=lambda: array("q"))
    outcome: str = RUNNING
    ended_ns: int | None = None

    def wrote(self, tokens: int, due_ns: int, written_ns: int) -> None:
        """Note a write that completed tokens."""
        self.tokens.append(tokens)
        self.due_ns.append(due_ns)
        self.written_ns.append(written_ns)


class TruthLog:
    """Keeps the truths of requests that run, and writes those of others to a file, a line each.

    Raises ``MockError`` when the file cannot be written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._file: IO[str] | None = None
        self._running: dict[str, Truth] = {}
        with os_errors(MockError, f"--truth {path}: cannot be written"):
            self._file = path.open("w") if path else None

    def begin(self, truth: Truth) -> None:
        """Add a request that came."""
        self._running[truth.request_id] = truth

    def end(self, truth: Truth, outcome: str, now_ns: int) -> None:
        """End a request; only the first end counts."""
        if truth.outcome != RUNNING:
            return
        truth.outcome, truth.ended_ns = outcome, now_ns
        del self._running[truth.request_id]
        if self._file:
            self._file.write(f"{json.dumps(asdict(truth), default=list)}\n")

    def close(self) -> None:
        """End the requests that still run as stopped, and close the file."""
        for truth in list(self._running.values()):
            self.end(truth, "stopped", time.perf_counter_ns())
        if self._file:
            self._file.close()
            self._file = None
