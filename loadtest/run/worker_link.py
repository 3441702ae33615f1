"""The link to a worker of a load test: what goes there, what comes back, and how it ends."""

import asyncio
import pickle
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Any

from servetwin.loadtest.plan.schedule import ClockZero
from servetwin.loadtest.run.node_clock import NodeClock
from servetwin.loadtest.run.worker import LENGTH, WorkerJob, packed
from servetwin.workloads.program.child_process import python_command, python_environment


class ProcessLink:
    """A worker process of this machine, on pipes.

    The pool that gives it a share of the load calls ``start``, and when all workers are ready
    ``begin``. ``receive`` waits for the next message (``loadtest.run.worker``); None means that the
    worker has died. ``loadtest.run.ray_link`` has the same for another machine.
    """

    def __init__(self) -> None:
        self._process: Process | None = None
        self._stopped = False

    async def start(self, job: WorkerJob) -> None:
        """Start the worker and send its job."""
        self._process = await asyncio.create_subprocess_exec(
            *python_command("-m", "servetwin.loadtest.run.worker"),
            stdin=PIPE,
            stdout=PIPE,
            env=python_environment(),
            start_new_session=True,  # Ctrl-C in a terminal reaches the parent alone.
        )
        self._send(job)
        if self._stopped:
            self.stop()

    async def measure_clock(self) -> NodeClock | None:
        """Return None: all processes of a machine share its clock."""
        return None

    async def begin(self, zero: ClockZero) -> None:
        """Let the worker send from this zero of its clock on, unless it has been stopped."""
        self._send(zero)

    async def receive(self) -> Any:
        """Wait for the next message; None when the process has died."""
        frame = await self.frame()
        return None if frame is None else pickle.loads(frame)

    async def frame(self) -> bytes | None:
        """Wait for the next message, as bytes; None when the process has died."""
        assert self._process
        assert self._process.stdout
        try:
            (length,) = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))
            return await self._process.stdout.readexactly(length)
        except asyncio.IncompleteReadError:
            return None

    def stop(self) -> None:
        """End the messages to the worker, at which it hands in what it has."""
        self._stopped = True
        if self._process and self._process.stdin:
            self._process.stdin.close()

    async def death(self) -> str:
        """Wait for the end of the process and return its exit code."""
        assert self._process
        return f"ended with exit code {await self._process.wait()}"

    async def end(self) -> None:
        """Kill the process if it still runs, and wait for its end."""
        if self._process:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            self.stop()

    def _send(self, message: object) -> None:
        assert self._process
        pipe = self._process.stdin
        if pipe and not pipe.is_closing():
            pipe.write(packed(message))
