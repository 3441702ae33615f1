"""The process in which the core runs, so that HTTP work never takes its interpreter lock.

It has one duplex pipe to its parent. It ends at a ``Stop`` message, when the pipe closes, or when a
step raises. Signals are the parent's business.
"""

import ctypes
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from servetwin.engine.adapters.adapter_folder import read_adapter
from servetwin.engine.checkpoint.find_model import find_model
from servetwin.engine.core.core import CoreClock, EngineCore
from servetwin.engine.core.messages import (
    Abort,
    Add,
    CoreStats,
    Failed,
    Message,
    Ping,
    Pong,
    Ready,
    Refused,
    RequestFailed,
    Stop,
    TokenEvent,
    Update,
    one_line,
)  # fmt: skip
from servetwin.engine.core.step_log import StepLogFile
from servetwin.engine.serve_options import ServeOptions
from servetwin.workloads.program.child import Child, start_child


class Inbox(Protocol):
    """Where the loop's messages come from."""

    def drain(self) -> list[Message]:
        """Return all messages that have arrived, without waiting."""

    def wait(self, seconds: float | None) -> None:
        """Wait until a message arrives, at most ``timeout_s`` seconds (None: without limit)."""


class CoreLoop:
    """Turns of a core: ``run`` until a ``Stop`` comes. ``send`` gets what each turn has to tell."""

    def __init__(self, core: EngineCore, inbox: Inbox, send: Callable[[Update], None]) -> None:
        self._core = core
        self._inbox = inbox
        self._send = send
        self._told: CoreStats | None = None
        self._stopped = False

    def run(self) -> None:
        """Serve until a ``Stop`` message; an exception of no single request goes to the caller."""
        while True:
            ran = self._turn()
            if self._core.log and not ran:
                self._core.log.flush()
            if self._stopped:
                return
            if not ran:
                wake_s = self._core.scheduler.wake_s()
                self._inbox.wait(None if wake_s is None else max(0.0, wake_s - self._core.clock()))

    def _turn(self) -> bool:
        """Hand over what has come, run one step, tell; whether there was a step to run."""
        messages = self._inbox.drain()
        now_s = self._core.clock()
        refused = self._hand_over(messages, now_s)
        if self._stopped:
            return False
        tokens = self._core.step(now_s)
        self._tell([*refused, *self._core.refusals(), *(tokens or ())])
        if tokens is not None and self._core.timekeeper:
            self._core.timekeeper.end_step()
        return tokens is not None

    def _hand_over(self, messages: list[Message], now_s: float) -> list[Refused | RequestFailed]:
        refused: list[Refused | RequestFailed] = []
        for message in messages:
            match message:
                case Add():
                    refused += self._add(message, now_s)
                case Abort(request_id):
                    self._core.abort(request_id)
                case Stop():
                    self._stopped = True
        return refused

    def _add(self, add: Add, now_s: float) -> list[Refused | RequestFailed]:
        """Hand a request to the core; return why it did not get in."""
        try:
            refusal = self._core.add(*add, now_s)
        except Exception as error:
            return [RequestFailed(add.request_id, one_line(error))]
        return [Refused(add.request_id, refusal.kind, refusal.reason)] if refusal else []

    def _tell(self, events: list[TokenEvent | Refused | RequestFailed]) -> None:
        stats = self._core.stats()
        if events or stats != self._told:
            self._told = stats
            self._send(Update(events, stats))


# Makes the core and the facts about it, inside the core's process; it must be picklable.
# A core that is started again gets the clock of the first, so that its step log goes on.
BuildCore = Callable[[CoreClock], tuple[EngineCore, dict[str, Any]]]


def bundled(options: ServeOptions) -> BuildCore:
    """Return a function that builds the core of the bundled engine.

    Raises ``EngineError`` for an unknown model, and for a checkpoint or an adapter that is not
    whole, before a process starts and imports torch.
    """
    model = options.model_config()
    find_model(options.model).stored(model)
    for name, folder in options.computation.adapters:
        read_adapter(name, Path(folder), model)
    return partial(_build_bundled, options)


class StartedCore(NamedTuple):
    """A core process that runs, the pipe to it, and its clock."""

    process: BaseProcess
    connection: Connection
    clock: CoreClock

    @classmethod
    def start(cls, build: BuildCore, clock: CoreClock) -> "StartedCore":
        """Start a core; its first message is ``Ready``, or ``Failed`` with the reason."""
        return cls.of(start_child(f"{__name__}:run_core", name="servetwin-core"), build, clock)

    @classmethod
    def of(cls, child: Child, build: BuildCore, clock: CoreClock | None = None) -> "StartedCore":
        """Say what core a process that was started before builds."""
        clock = clock or CoreClock()
        with suppress(OSError):  # it has failed, and said why
            child[1].send((build, clock))
        return cls(*child, clock)


def run_core(connection: Connection, imports: str = "sys") -> None:
    """Run the core process: build the core, report its facts, serve until a ``Stop`` message.

    It ``imports`` a module while its parent reads which core to build.
    """
    keep_freed_memory()
    try:
        import_module(imports)
        build, clock = connection.recv()
        core, facts = build(clock)
    except Exception as error:
        _say(connection, Failed(one_line(error)))
        sys.exit(2)
    _say(connection, Ready(facts))
    try:
        CoreLoop(core, _PipeInbox(connection), connection.send).run()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent has exited
    except Exception as error:
        _say(connection, Failed(f"a step failed: {one_line(error)}"))
        raise
    finally:
        if isinstance(core.log, StepLogFile):
            core.log.close()


# malloc.h of the GNU C library; https://man7.org/linux/man-pages/man3/mallopt.3.html
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# Blocks below this size come from the heap; the most that the library allows.
LARGEST_KEPT_BYTES = 32 << 20
_NEVER_TRIM_BYTES = 1 << 30


def keep_freed_memory() -> bool:
    """Keep freed memory in the heap, and return whether the C library has such a setting.

    By default the GNU C library returns the top of the heap to the system once 64 MiB there are
    free. Then a step with a large padded batch changes the resident memory by tens of MiB, up or
    down as the heap happens to lie, and a leak cannot be told from that.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # as on macOS, with musl, and on Windows
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        and mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM_BYTES)
    )


class _PipeInbox:
    """The pipe as the loop's inbox. It answers each ``Ping`` itself: the policies see none."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._messages: list[Message] = []

    def drain(self) -> list[Message]:
        while self._connection.poll():
            self._receive()
        messages, self._messages = self._messages, []
        return messages

    def wait(self, seconds: float | None) -> None:
        until_s = None if seconds is None else time.monotonic() + seconds
        while not self._messages:
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            if not self._connection.poll(left_s):
                return
            self._receive()

    def _receive(self) -> None:
        message: Message = self._connection.recv()
        if isinstance(message, Ping):
            self._connection.send(Pong())
        else:
            self._messages.append(message)


def _build_bundled(options: ServeOptions, clock: CoreClock) -> tuple[EngineCore, dict[str, Any]]:
    # torch is imported here, in the core's process
    from servetwin.engine.core.build import build_core

    return build_core(options, clock)


def _say(connection: Connection, message: Ready | Failed) -> None:
    try:
        connection.send(message)
    except (BrokenPipeError, ConnectionResetError):
        sys.exit(1)
