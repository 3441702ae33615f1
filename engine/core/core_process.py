"""The process in which the core runs, so that HTTP work never takes its interpreter lock.

It has one duplex pipe to its parent. It ends at a ``Stop`` message, when the pipe closes, or when a
step raises. Signals are the parent's business.
"""

import multiprocessing
import signal
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from engine.core.core import EngineCore
from engine.core.core_loop import CoreLoop
from engine.core.messages import Failed, Message, Ready, one_line
from engine.core.step_log import StepLogFile
from engine.models.model_config import model_preset
from engine.serve_options import ServeOptions
from workloads.errors import EngineError

BuildCore = Callable[[], tuple[EngineCore, dict[str, Any]]]
"""Makes the core and the facts about it, inside the core's process; it must be picklable."""

CoreProcess = multiprocessing.process.BaseProcess


def bundled(options: ServeOptions) -> BuildCore:
    """Return a function that builds the core of the bundled engine.

    Raises ``EngineError`` for an unknown model, before a process starts and imports torch.
    """
    model_preset(options.model)
    return partial(_build_bundled, options)


def start_process(build: BuildCore) -> tuple[CoreProcess, Connection, dict[str, Any]]:
    """Start a core in a process; returns when it is ready.

    Raises ``EngineError`` with the core's own reason when it cannot start.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=True)
    process = context.Process(target=run_core, args=(theirs, build), name="servetwin-core")
    process.start()
    theirs.close()
    try:
        answer = ours.recv()
    except BaseException as error:
        process.kill()
        process.join()
        if isinstance(error, EOFError):
            raise EngineError("the engine core died while it was starting") from error
        raise
    if isinstance(answer, Failed):
        process.join()
        raise EngineError(answer.message)
    assert isinstance(answer, Ready)
    return process, ours, answer.facts


def run_core(connection: Connection, build: BuildCore) -> None:
    """Run the core process: build the core, report its facts, serve until a ``Stop`` message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        core, facts = build()
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


class _PipeInbox:
    """The pipe as the loop's inbox."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def drain(self) -> list[Message]:
        messages = []
        while self._connection.poll():
            messages.append(self._connection.recv())
        return messages

    def wait(self, seconds: float | None) -> None:
        self._connection.poll(seconds)


def _build_bundled(options: ServeOptions) -> tuple[EngineCore, dict[str, Any]]:
    from engine.core.build import build_core  # torch is imported here, in the core's process

    return build_core(options)


def _say(connection: Connection, message: Ready | Failed) -> None:
    try:
        connection.send(message)
    except (BrokenPipeError, ConnectionResetError):
        sys.exit(1)
