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
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

from loadtest.endpoint import Endpoint
from loadtest.options import LoadOptions
from loadtest.plan.schedule import ClockZero, build_schedule
from loadtest.run.event_loop import run_fast
from loadtest.run.loop_watch import quiet_gc
from loadtest.run.progress import progress
from loadtest.run.worker_client import WorkerClient
from workloads.errors import ServetwinError
from workloads.trace import Trace

READY = "ready"
LENGTH = struct.Struct("!Q")
"""Before each message, the number of its bytes."""


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """A worker's share of the load."""

    endpoint: Endpoint
    trace: Trace
    options: LoadOptions


def packed(message: object) -> bytes:
    """A message as it goes through a pipe."""
    data = pickle.dumps(message)
    return LENGTH.pack(len(data)) + data


def main() -> None:
    """Do what stdin says. Whatever else is printed goes to stderr: stdout is for messages."""
    parent = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Who has nobody left to tell has nothing left to do.
    with suppress(BrokenPipeError), parent:
        job = _heard()
        try:
            with quiet_gc():
                driver = run_fast(_drive(job, parent))
            _tell(parent, driver.part())
        except ServetwinError as error:
            _tell(parent, error)


async def _drive(job: WorkerJob, parent: IO[bytes]) -> WorkerClient:
    schedule = build_schedule(job.trace, job.endpoint, job.options)
    async with WorkerClient(job.endpoint, schedule, job.options) as driver:
        _tell(parent, READY)
        zero = _heard()  # Nothing else is to be done before.
        with _stopped_by_parent(driver):
            if zero is None:
                driver.interrupt()
            tell = partial(_tell, parent)
            with progress(driver.progress, job.options.progress_every_s, tell):
                await driver.run(zero or ClockZero.after(0.0))
    return driver


@contextmanager
def _stopped_by_parent(driver: WorkerClient) -> Iterator[None]:
    """All that can still come from the parent is the end."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_reader(sys.stdin)
        driver.interrupt()

    loop.add_reader(sys.stdin, stop)
    try:
        yield
    finally:
        loop.remove_reader(sys.stdin)


def _tell(parent: IO[bytes], message: object) -> None:
    parent.write(packed(message))
    parent.flush()


def _heard() -> Any:
    """The next message of the parent; None at the end."""
    length = sys.stdin.buffer.read(LENGTH.size)
    return pickle.loads(sys.stdin.buffer.read(LENGTH.unpack(length)[0])) if length else None


if __name__ == "__main__":
    main()
