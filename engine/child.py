"""A child process with a pipe to it. It leaves signals to its parent."""

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

Child = tuple[BaseProcess, Connection]
"""A process, and the parent's end of its pipe."""


def start_child(
    work: Callable[..., None], *arguments: object, name: str, daemon: bool = False
) -> Child:
    """Start ``work`` in a process of its own, with its end of the pipe before the arguments.

    A ``daemon`` ends with this process, and has no children.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=True)
    given = work, theirs, *arguments
    process = context.Process(target=_run, args=given, name=name, daemon=daemon)
    process.start()
    theirs.close()
    return process, ours


def _run(work: Callable[..., None], connection: Connection, *arguments: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    work(connection, *arguments)
