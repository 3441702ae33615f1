"""The journal of a load test: each request that has ended, in the run folder within a second.

A load test that is killed leaves it behind, and ``loadtest.run.recovery`` makes a run of it; a run
that is saved removes it. It is only appended to, JSON in lines: the load, the zero of its
clock, then a line per request (``loadtest.run.journal_lines``).

The process that sends makes the lines in its idle time and hands them over with its progress. A
thread writes them, so that no disk makes a request late.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from servetwin.loadtest.plan.schedule import ClockZero
from servetwin.loadtest.run.journal_lines import encoded
from servetwin.sim.records.run import JOURNAL


class Journal:
    """The journal in one run folder; ``scenario`` is what its maker knows of the load beforehand.

    A disk on which it cannot be written ends the journal and not the load test. An error that ends
    the load test before any request has ended takes the file away.
    """

    def __init__(self, folder: Path, scenario: Mapping[str, Any]) -> None:
        self._path = folder / JOURNAL
        self._scenario = scenario
        self._thread = ThreadPoolExecutor(1, "journal")
        self._failed = False
        self._has_requests = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        if error and not self._has_requests:
            self._remove()

    def begin(self, scenario: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
        """Begin the file with the load that is about to be sent."""
        line = {"scenario": {**scenario, **self._scenario}, "meta": meta}
        self._remove()
        self._submit(f"{encoded(line)}\n".encode())

    def started(self, zero: ClockZero) -> None:
        """Note the zero of the clock."""
        meta = {"clock_zero_perf_counter_s": zero.perf_counter_ns / 1e9}
        self._submit(f"{encoded({**meta, 'clock_zero_unix_s': zero.unix_s})}\n".encode())

    def append(self, lines: bytes) -> None:
        """Append the lines of requests, soon and in another thread."""
        if lines:
            self._has_requests = True
            self._submit(lines)

    def _submit(self, lines: bytes) -> None:
        self._thread.submit(self._write, lines)

    def _write(self, lines: bytes) -> None:
        if self._failed:
            return
        try:
            with self._path.open("ab") as file:
                file.write(lines)
        except OSError:
            self._failed = True
            self._remove()  # The files of the run need its space.

    def _remove(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
