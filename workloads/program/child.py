"""A child process with a pipe to it. It leaves signals to its parent."""

import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pkgutil import resolve_name

# A process, and the parent's end of its pipe.
Child = tuple[BaseProcess, Connection]


def start_child(place: str, *arguments: object, name: str, daemon: bool = False) -> Child:
    """Start ``module:function`` in a process of its own, with its end of the pipe first.

    A ``daemon`` ends with this process, and has no children.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=True)
    given = place, theirs, *arguments
    process = context.Process(target=_run, args=given, name=name, daemon=daemon)
    process.start()
    theirs.close()
    return process, ours


@contextmanager
def started_child(place: str, *arguments: object, name: str) -> Iterator[Child]:
    """Start a child, and end it by force if it still runs at the end."""
    process, connection = start_child(place, *arguments, name=name)
    try:
        yield process, connection
    finally:
        process.kill()
        process.join()
        connection.close()


def _run(place: str, connection: Connection, *arguments: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    resolve_name(place)(connection, *arguments)
