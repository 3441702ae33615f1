"""One core process as the HTTP process sees it: its pipe, and the thread that writes to it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from servetwin.engine.core.core_process import CoreProcess
from servetwin.engine.core.messages import Failed, Message, Stop

STOP_CORE_S = 10.0
"""How long the core may take over its last step."""


class CoreLink:
    """Sends messages to a core process and hands on what it says.

    A thread sends: while the core is inside a step it does not read the pipe, and a long prompt
    must not stop the event loop. All else belongs to the event loop's thread.
    """

    def __init__(self, process: CoreProcess, connection: Connection) -> None:
        self.process = process
        self._connection = connection
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="to-core")
        self._attached = False

    def attach(self, on_message: Callable[[Any], None]) -> None:
        """Read the pipe on the running event loop; the last message is a ``Failed``."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._connection.fileno(), self._receive, on_message)
        self._attached = True

    def detach(self) -> None:
        """Stop reading the pipe, and sending."""
        if self._attached:
            self._attached = False
            asyncio.get_running_loop().remove_reader(self._connection.fileno())

    def send(self, message: Message) -> None:
        """Send a message soon, if anyone is there."""
        if self._attached:
            self._sender.submit(self._connection.send, message)

    def close(self, grace_s: float) -> None:
        """Let the process finish its step, end it by force if it takes longer, close the pipe."""
        self.send(Stop())
        self.detach()
        try:
            self.process.join(grace_s)
        finally:
            self.process.kill()
            self.process.join()
            self._sender.shutdown()
            self._connection.close()

    def _receive(self, on_message: Callable[[Any], None]) -> None:
        try:
            message = self._connection.recv()
        except (EOFError, OSError):
            message = Failed("its process is gone")
        if isinstance(message, Failed):
            self.detach()
        on_message(message)
