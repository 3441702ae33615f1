"""A worker: one process of a load test that several share, and its messages.

Parent to worker on stdin: a ``WorkerJob``, then the ``ClockZero``, then the end of the file, which
means stop. Worker to parent on stdout: ``READY``, ``Progress`` now and then, and at the end its
``WorkerResult``.
"""

import asyncio
import os
import pickle
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, Any, NamedTuple

from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.options import LoadOptions
from servetwin.loadtest.plan.schedule import ClockZero, build_schedule
from servetwin.loadtest.run.event_loop import quiet_gc, run_fast
from servetwin.loadtest.run.progress import progress_reports
from servetwin.loadtest.run.worker_client import WorkerClient
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.trace import Trace

READY = "ready"
# Before each message, the number of its bytes.
LENGTH = struct.Struct("!Q")


class WorkerJob(NamedTuple):
    """A worker's share of the load, and whether its progress has the lines of a journal."""

    endpoint: Endpoint
    trace: Trace
    options: LoadOptions
    journal: bool = False


def packed(message: object) -> bytes:
    """Return the bytes of a message for a pipe."""
    data = pickle.dumps(message)
    return LENGTH.pack(len(data)) + data


def main() -> None:
    """Run the job from stdin. Stdout is for messages, so anything printed goes to stderr."""
    parent = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Without a parent there is nothing left to do.
    with suppress(BrokenPipeError), parent:
        job = _receive()
        try:
            with quiet_gc():
                client = run_fast(_run(job, parent))
            _send(parent, client.result())
        except ServetwinError as error:
            _send(parent, error)


async def _run(job: WorkerJob, parent: IO[bytes]) -> WorkerClient:
    schedule = build_schedule(job.trace, job.endpoint, job.options)
    client = WorkerClient(job.endpoint, schedule, job.options, journal=job.journal)
    async with client:
        _send(parent, READY)
        zero = _receive()  # Blocks the event loop: nothing else is to be done before the start.
        with _stopped_by_parent(client):
            if zero is None:
                client.interrupt()
            send = partial(_send, parent)
            with progress_reports(client.progress, job.options.progress_every_s, send):
                await client.run(zero or ClockZero.after(0.0))
    return client


@contextmanager
def _stopped_by_parent(client: WorkerClient) -> Iterator[None]:
    """Interrupt the client at the end of stdin: after the start nothing else comes from there."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_reader(sys.stdin)
        client.interrupt()

    loop.add_reader(sys.stdin, stop)
    try:
        yield
    finally:
        loop.remove_reader(sys.stdin)


def _send(parent: IO[bytes], message: object) -> None:
    parent.write(packed(message))
    parent.flush()


def _receive() -> Any:
    """Wait for the next message of the parent; None at the end of stdin."""
    length = sys.stdin.buffer.read(LENGTH.size)
    return pickle.loads(sys.stdin.buffer.read(LENGTH.unpack(length)[0])) if length else None


if __name__ == "__main__":
    main()
