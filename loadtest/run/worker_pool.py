"""A load test shared by workers: root i and its followers go to worker i mod P.

All workers have one zero, each on the monotonic clock of its machine, and their schedules before
the start, so nothing but progress passes between them and this process while the load runs. Each
hands in its result at the end. A worker that dies loses those of its requests that have not ended,
and no others.
"""

import asyncio
import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.http.exchange import Failure
from servetwin.loadtest.options import LoadOptions
from servetwin.loadtest.plan.request_dependencies import split_among, task_numbers
from servetwin.loadtest.plan.schedule import ClockZero, ScheduledRequest, expected_peak_tokens_per_s
from servetwin.loadtest.report.rows import Row, Sending, request_rows
from servetwin.loadtest.run.event_loop import stop_signals
from servetwin.loadtest.run.journal import Journal
from servetwin.loadtest.run.journal_lines import read_lines
from servetwin.loadtest.run.node_clock import NodeClock
from servetwin.loadtest.run.progress import LiveAnswer, OnProgress, Progress, progress_reports
from servetwin.loadtest.run.ray_link import RayLink, ray_links
from servetwin.loadtest.run.worker import WorkerJob
from servetwin.loadtest.run.worker_client import WorkerResult
from servetwin.loadtest.run.worker_link import ProcessLink
from servetwin.workloads.errors import LoadTestError, ServetwinError
from servetwin.workloads.trace import Trace

WorkerLink = ProcessLink | RayLink

# Above this rate one process gets late on common machines, without uvloop first.
TOKENS_PER_S_A_PROCESS = 10_000


def processes_for(trace: Trace, options: LoadOptions) -> int:
    """Return how many processes send ``trace``: the number chosen, else what its peak rate needs.

    Never more than there are roots (users, conversations, single requests), nor, unless chosen,
    than there are cores. Lanes begin their measured phase together, so one process sends them all;
    raises ``LoadTestError`` where more are chosen.
    """
    if trace.lanes and (options.processes or 1) > 1:
        raise LoadTestError("--processes: one process sends all lanes; leave it out")
    wanted = options.processes or min(_needed_by_rate(trace, options), os.cpu_count() or 1)
    return 1 if trace.lanes else max(1, min(wanted, _tasks(trace, options)))


@contextmanager
def worker_links(job: WorkerJob) -> Iterator[Sequence[WorkerLink]]:
    """Yield a link to each worker; none where this process sends the load itself."""
    endpoint, trace, options, _ = job
    if options.on_ray and trace.lanes:
        raise LoadTestError("--workers ray: one process sends all lanes; leave it out")
    if options.on_ray:
        wanted, most = _needed_by_rate(trace, options), _tasks(trace, options)
        with ray_links(endpoint, options, wanted, most) as links:
            yield links
    else:
        processes = processes_for(trace, options)
        yield [ProcessLink() for _ in range(processes)] if processes > 1 else ()


async def run_workers(
    job: WorkerJob,
    links: Sequence[WorkerLink],
    on_progress: OnProgress | None,
    journal: Journal | None,
) -> tuple[ClockZero, list[WorkerResult]]:
    """Send the trace from several workers; return the zero and each result, also lost ones.

    On the first SIGINT or SIGTERM every worker hands in what
    it has. Raises the error that keeps a worker from starting.
    """
    endpoint, trace, options, _ = job
    closed_loop = options.follows(trace)
    shares = split_among(trace, len(links), closed_loop=closed_loop)
    workers = [
        _Worker(number, share, link, journal)
        for number, (share, link) in enumerate(zip(shares, links, strict=True))
    ]
    each = replace(
        options, processes=1, closed_loop=closed_loop, progress_every_s=options.progress_every_s / 2
    )
    with stop_signals(lambda: [link.stop() for link in links]):
        try:
            await asyncio.gather(*(worker.start(endpoint, each) for worker in workers))
            await asyncio.gather(*(worker.measure_clock() for worker in workers))
            zero = ClockZero.after(options.lead_s)
            if journal:
                journal.started(zero)
            await asyncio.gather(*(worker.begin(zero) for worker in workers))
            with progress_reports(lambda: _sum(workers), options.progress_every_s, on_progress):
                results = await asyncio.gather(*(worker.result() for worker in workers))
        finally:
            await asyncio.gather(*(worker.link.end() for worker in workers))
    return zero, results


def _needed_by_rate(trace: Trace, options: LoadOptions) -> int:
    return math.ceil(expected_peak_tokens_per_s(trace, options) / TOKENS_PER_S_A_PROCESS)


def _tasks(trace: Trace, options: LoadOptions) -> int:
    return 1 + max(task_numbers(trace, closed_loop=options.follows(trace)).values())


def merged(rows: Sequence[list[Row]]) -> list[Row]:
    """Return the rows of all processes by their scheduled time; ties in the order of the roots."""
    placed = [
        (row["scheduled_s"], place, worker)
        for worker, listed in enumerate(rows)
        for place, row in enumerate(listed)
    ]
    return [rows[worker][place] for _, place, worker in sorted(placed)]


class _Worker:
    """A worker with its share of the load, and what is known of it so far."""

    def __init__(
        self, number: int, trace: Trace, link: WorkerLink, journal: Journal | None
    ) -> None:
        self._number = number
        self._trace = trace
        self._journal = journal
        self.link = link
        self.progress = Progress(0.0, len(trace), 0, 0, 0)
        self._answers: list[LiveAnswer] = []
        self._clocks: list[NodeClock] = []
        self._lines = bytearray()  # Of the journal: what is known should the worker die.

    async def start(self, endpoint: Endpoint, options: LoadOptions) -> None:
        """Start the worker and wait until it is ready or has died."""
        await self.link.start(WorkerJob(endpoint, self._trace, options, self._journal is not None))
        message = await self.link.receive()
        if isinstance(message, ServetwinError):
            raise message

    async def measure_clock(self) -> None:
        """Measure the clock of the worker's machine against ours."""
        if clock := await self.link.measure_clock():
            self._clocks.append(clock)

    async def begin(self, zero: ClockZero) -> None:
        """Send the zero on the worker's own clock, so that all its stamps count from ours."""
        await self.link.begin(zero.on_clock(self._clocks[0].offset_ns) if self._clocks else zero)

    async def result(self) -> WorkerResult:
        """Wait until the worker hands in its result or dies, and return the result."""
        while isinstance(message := await self.link.receive(), Progress):
            self.progress = message
            self._answers += message.answers
            self._lines += message.journal
            if self._journal:
                self._journal.append(message.journal)
        if not isinstance(message, WorkerResult):
            death = f"process {self._number + 1} of the load test {await self.link.death()}"
            message = lost_result(self._trace, bytes(self._lines), death)
        await self.measure_clock()
        return replace(message, clocks=self._clocks)

    def new_answers(self) -> list[LiveAnswer]:
        """Take the answers reported since the last call."""
        fresh, self._answers = self._answers, []
        return fresh


def _sum(workers: Sequence[_Worker]) -> Progress:
    states = [worker.progress for worker in workers]
    counts = ((state.total, state.sent, state.ended, state.failed) for state in states)
    total, sent, ended, failed = map(sum, zip(*counts, strict=True))
    answers = tuple(answer for worker in workers for answer in worker.new_answers())
    return Progress(max(s.elapsed_s for s in states), total, sent, ended, failed, answers)


def lost_result(trace: Trace, journal: bytes, death: str) -> WorkerResult:
    """Return the result of a worker that handed in none.

    ``journal`` has the lines that came from it before: these requests have ended. The others of its
    ``trace`` are ``client_lost``; ``death`` says which worker it was, and how it ended.
    """
    rows, first_messages = read_lines(map(json.loads, journal.splitlines()))
    ended = {row["request_id"] for row in rows}
    lost = [request for request in trace if request.request_id not in ended]
    reason = (
        f"{death} before it handed in its records: what became of {len(lost)} of its {len(trace)} "
        "requests is not known"
    )
    failure = Failure("client_lost", reason)
    sends = (ScheduledRequest(request.arrival_s, request, b"") for request in lost)
    sendings = [Sending(send=send, failure=failure) for send in sends]
    lost_rows, messages = request_rows(sendings, 0, "")
    return WorkerResult([*rows, *lost_rows], {**messages, **first_messages}, lost=True)
