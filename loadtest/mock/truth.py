"""The truth: what the mock really did for each request, on the clock of all local processes."""

import json
import time
from array import array
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from workloads.errors import MockError

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

    @property
    def ttft_s(self) -> float:
        """The time from its arrival to the first token."""
        return (self.written_ns[0] - self.arrival_ns) / 1e9

    @property
    def tpot_s(self) -> float:
        """The time per token after those of the first write."""
        return (self.written_ns[-1] - self.written_ns[0]) / 1e9 / sum(self.tokens[1:])

    def wrote(self, tokens: int, due_ns: int, written_ns: int) -> None:
        """Note a write that completed tokens."""
        self.tokens.append(tokens)
        self.due_ns.append(due_ns)
        self.written_ns.append(written_ns)

    def as_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self), default=list)

    @classmethod
    def from_json(cls, line: str) -> "Truth":
        """Read a line that ``as_json`` wrote."""
        fields: dict[str, Any] = json.loads(line)
        stamps = {name: array("q", fields[name]) for name in ("due_ns", "written_ns")}
        return cls(**{**fields, **stamps})


class TruthLog:
    """Keeps truths in memory (``records``) with ``keep``, and in a file, a line per request.

    Raises ``MockError`` when the file cannot be written.
    """

    def __init__(self, path: Path | None = None, *, keep: bool = True) -> None:
        self._file = _open(path) if path else None
        self._keep = keep
        self._running: dict[str, Truth] = {}
        self.records: list[Truth] = []

    def begin(self, truth: Truth) -> None:
        """Add a request that came."""
        self._running[truth.request_id] = truth
        if self._keep:
            self.records.append(truth)

    def end(self, truth: Truth, outcome: str, now_ns: int) -> None:
        """End a request; only the first end counts."""
        if truth.outcome != RUNNING:
            return
        truth.outcome, truth.ended_ns = outcome, now_ns
        del self._running[truth.request_id]
        self._write(truth)

    def close(self) -> None:
        """End the requests that still run as stopped, and close the file."""
        for truth in list(self._running.values()):
            self.end(truth, "stopped", time.perf_counter_ns())
        if self._file:
            self._file.close()

    def _write(self, truth: Truth) -> None:
        if self._file:
            self._file.write(f"{truth.as_json()}\n")


def read_truth(path: Path) -> list[Truth]:
    """Read the records of a file, in the order in which the requests ended."""
    with path.open() as lines:
        return [Truth.from_json(line) for line in lines]


def _open(path: Path) -> IO[str]:
    try:
        return path.open("w")
    except OSError as error:
        raise MockError(f"--truth {path}: cannot be written ({error.strerror})") from error
