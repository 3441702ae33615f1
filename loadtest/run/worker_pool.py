"""A schedule shared out over processes: request i goes to process i mod P, and its followers too.

All have one zero on one monotonic clock, and each has its own schedule before the start, so that
nothing passes between them while the load runs but their progress. What a process measured comes
at the end. One that dies loses its own requests, no others.
"""

import asyncio
import math
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from loadtest.endpoint import Endpoint
from loadtest.http.exchange import Exchange, Failure
from loadtest.options import LoadOptions, OnProgress, Progress
from loadtest.plan.request_dependencies import roots_and_followers, split_among
from loadtest.plan.schedule import ClockZero, ScheduledRequest, expected_peak_tokens_per_s
from loadtest.report.records import Row, request_rows
from loadtest.run.progress import progress
from loadtest.run.stop_signals import stop_signals
from loadtest.run.worker import LENGTH, WorkerJob, packed
from loadtest.run.worker_client import WorkerResult
from loadtest.stream.live_answers import LiveAnswer
from workloads.errors import ServetwinError
from workloads.trace import Trace

TOKENS_PER_S_A_PROCESS = 10_000
"""Above this the client gets late on common machines, without uvloop first."""


def processes_for(trace: Trace, options: LoadOptions) -> int:
    """How many processes send ``trace``: those asked for, else what its peak asks for.

    Never more than there are users, conversations or lone requests, nor, unless asked for, than
    there are cores.
    """
    wanted = options.processes
    if wanted is None:
        by_rate = math.ceil(expected_peak_tokens_per_s(trace, options) / TOKENS_PER_S_A_PROCESS)
        wanted = min(by_rate, os.cpu_count() or 1)
    roots, _ = roots_and_followers(trace, closed_loop=options.follows(trace))
    return max(1, min(wanted, len(roots)))


async def run_workers(
    endpoint: Endpoint,
    trace: Trace,
    options: LoadOptions,
    processes: int,
    on_progress: OnProgress | None = None,
) -> tuple[ClockZero, list[WorkerResult]]:
    """Send ``trace`` from so many processes: the zero, and the part of each, lost ones included.

    ``give_up_after`` is shared out as well. SIGINT and SIGTERM are taken here, once: every process
    then hands in what it has. Raises what keeps a process from starting.
    """
    closed_loop = options.follows(trace)
    shares = split_among(trace, processes, closed_loop=closed_loop)
    workers = [_Worker(number, share) for number, share in enumerate(shares)]
    each = replace(
        options,
        processes=1,
        closed_loop=closed_loop,
        give_up_after=math.ceil(options.give_up_after / processes),
        progress_every_s=options.progress_every_s / 2,
    )
    with stop_signals(lambda: _stop(workers)):
        try:
            await asyncio.gather(*(worker.start(endpoint, each) for worker in workers))
            zero = ClockZero.after(options.lead_s)
            for worker in workers:
                worker.tell(zero)
            with progress(lambda: _sum(workers), options.progress_every_s, on_progress):
                parts = await asyncio.gather(*(worker.part() for worker in workers))
        finally:
            await asyncio.gather(*(worker.end() for worker in workers))
    return zero, parts


def merged(rows: Sequence[list[Row]]) -> list[Row]:
    """The rows of all processes in the order of their time; ties as they were shared out."""
    placed = [
        (row["scheduled_s"], place, part)
        for part, listed in enumerate(rows)
        for place, row in enumerate(listed)
    ]
    return [rows[part][place] for _, place, part in sorted(placed)]


class _Worker:
    """A process of the load test, seen from its parent."""

    def __init__(self, number: int, trace: Trace) -> None:
        self._number = number
        self._trace = trace
        self._process: Process | None = None
        self._stopped = False
        self.progress = Progress(0.0, len(trace), 0, 0, 0)
        self._answers: list[LiveAnswer] = []

    async def start(self, endpoint: Endpoint, options: LoadOptions) -> None:
        """Start it and wait until it is ready, or has died."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "loadtest.run.worker",
            stdin=PIPE,
            stdout=PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C in a terminal goes to us alone.
        )
        self.tell(WorkerJob(endpoint, self._trace, options))
        if self._stopped:
            self.stop()
        message = await self._heard()
        if isinstance(message, ServetwinError):
            raise message

    def tell(self, message: object) -> None:
        """Send it a message; nothing where it has been stopped."""
        if (pipe := self._stdin) and not pipe.is_closing():
            pipe.write(packed(message))

    def stop(self) -> None:
        """Have it hand in what it has."""
        self._stopped = True
        if self._stdin:
            self._stdin.close()

    async def part(self) -> WorkerResult:
        """What it measured, once it has handed that in or died."""
        while isinstance(message := await self._heard(), Progress):
            self.progress = message
            self._answers += message.answers
        return message if isinstance(message, WorkerResult) else await self._lost()

    def new_answers(self) -> list[LiveAnswer]:
        """Those told since this was asked last."""
        told, self._answers = self._answers, []
        return told

    async def end(self) -> None:
        """Let it go, or see that it goes."""
        if self._process:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            self.stop()

    @property
    def _stdin(self) -> asyncio.StreamWriter | None:
        return self._process.stdin if self._process else None

    async def _heard(self) -> Any:
        """Its next message; None when it has died."""
        assert self._process
        assert self._process.stdout
        try:
            (length,) = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))
            return pickle.loads(await self._process.stdout.readexactly(length))
        except asyncio.IncompleteReadError:
            return None

    async def _lost(self) -> WorkerResult:
        assert self._process
        code = await self._process.wait()
        reason = (
            f"process {self._number + 1} of the load test ended with exit code {code} before it "
            f"handed in its records: what became of its {len(self._trace)} requests is not known"
        )
        sends = [ScheduledRequest(request.arrival_s, request, b"") for request in self._trace]
        failure = Failure("client_lost", reason)
        rows, first_messages = request_rows(sends, [Exchange(failure=failure)] * len(sends), 0, "")
        return WorkerResult(rows, first_messages, lost=True)


def _stop(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.stop()


def _sum(workers: Sequence[_Worker]) -> Progress:
    states = [worker.progress for worker in workers]
    return Progress(
        max(state.elapsed_s for state in states),
        sum(state.total for state in states),
        sum(state.sent for state in states),
        sum(state.ended for state in states),
        sum(state.failed for state in states),
        tuple(answer for worker in workers for answer in worker.new_answers()),
    )
