"""Serve a core: the core in its process, the API in this one, and an orderly end."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import uvicorn

from engine.core.core_client import CoreClient, Ended
from engine.core.core_process import BuildCore, CoreProcess, bundled, start_process
from engine.core.metrics import Metrics
from engine.http.api import create_app
from engine.serve_options import ServeOptions
from workloads.errors import EngineError
from workloads.listening import listening_socket, url_of

DEATH_LINGER_S = 1.0
"""How long ``/health`` says 503 after the core has died, before the server ends."""
CLOSE_CONNECTIONS_S = 5
"""How long complete answers may take to leave, at the end."""
STOP_CORE_S = 10.0
"""How long the core may take over its last step."""
KEEP_ALIVE_S = 120
"""How long an idle connection stays open: longer than a load test's pauses."""


def serve(options: ServeOptions, on_ready: Callable[[str], None]) -> None:
    """Serve the bundled engine (``serve_core``)."""
    serve_core(bundled(options), on_ready, options.host, options.port, options.drain_s)


def serve_core(
    build: BuildCore, on_ready: Callable[[str], None], host: str, port: int, drain_s: float
) -> None:
    """Serve a core until a signal says stop; ``on_ready`` gets the URL once requests are accepted.

    The first SIGTERM or SIGINT lets running requests finish (at most ``drain_s``) and refuses new
    ones; the second ends all at once. Call it in the main thread.

    Raises ``EngineError`` when the server cannot start, or when its core has died.
    """
    with listening_socket(host, port, EngineError) as listener:
        process, connection, facts = start_process(build)
        with closing(connection), _ending(process):
            core = CoreClient(connection, Metrics(facts["model"]))
            config = uvicorn.Config(
                create_app(core, facts),
                access_log=False,
                log_level="warning",
                ws="none",
                timeout_graceful_shutdown=CLOSE_CONNECTIONS_S,
                timeout_keep_alive=KEEP_ALIVE_S,
            )
            server = _Server(config, core, drain_s, lambda: on_ready(url_of(listener)))
            asyncio.run(server.serve(sockets=[listener]))
            core.stop()
    if core.died.is_set():
        raise EngineError(f"{core.why_died} (exit code {process.exitcode})")


class _Server(uvicorn.Server):
    """Uvicorn that ends as ``serve`` promises."""

    def __init__(
        self,
        config: uvicorn.Config,
        core: CoreClient,
        drain_s: float,
        on_started: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._core = core
        self._drain_s = drain_s
        self._on_started = on_started
        self._tasks: list[asyncio.Task[None]] = []

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM while the server runs."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Call ``on_started`` once requests are accepted, and watch the core."""
        await super().startup(sockets)
        self._tasks.append(asyncio.create_task(self._end_with_core()))
        self._on_started()

    def _on_signal(self) -> None:
        if self._core.draining:
            self.force_exit = self.should_exit = True
            return
        self._core.draining = True
        self._tasks.append(asyncio.create_task(self._drain()))

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._drain_s):
                await self._core.idle.wait()
        except TimeoutError:
            self._core.end_all(Ended("shutting down", "the server is shutting down"))
        self.should_exit = True

    async def _end_with_core(self) -> None:
        await self._core.died.wait()
        await asyncio.sleep(DEATH_LINGER_S)
        self.should_exit = True


@contextmanager
def _ending(process: CoreProcess) -> Iterator[None]:
    """End the core's process when the block is left, by force if needed."""
    try:
        yield
        process.join(STOP_CORE_S)
    finally:
        process.kill()
        process.join()
