"""Serve a core: the core in its process, the API in this one, and an orderly end."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from servetwin.engine.core.core_client import CoreClient, Ended
from servetwin.engine.core.core_process import BuildCore, StartedCore
from servetwin.engine.core.supervisor import Supervisor, watch
from servetwin.engine.http.api import create_app
from servetwin.engine.http.guarded_protocol import GuardedProtocol
from servetwin.engine.http.http_settings import HttpSettings
from servetwin.engine.text.byte_tokenizer import ByteTokenizer
from servetwin.engine.text.tokenizer import Tokenizer
from servetwin.workloads.errors import EngineError
from servetwin.workloads.program.listening import listening_socket, url_of

try:
    import resource
except ModuleNotFoundError:  # not on Windows
    resource = None  # type: ignore[assignment]

# How long ``/health`` says 503 after the core has died for good, before the server ends.
DEATH_LINGER_S = 1.0
# How long complete answers may take to leave, at the end.
CLOSE_CONNECTIONS_S = 5
# The same after a second signal.
ABORT_CONNECTIONS_S = 1.0
# How long an idle connection stays open: longer than a load test's pauses.
KEEP_ALIVE_S = 120


def serve_core(
    build: BuildCore,
    model: str,
    settings: HttpSettings,
    on_ready: Callable[[str], None],
    tokenizer: Tokenizer = ByteTokenizer(),  # noqa: B008, it is frozen
    first: StartedCore | None = None,
) -> None:
    """Serve a core until a signal says stop; ``on_ready`` gets the URL once requests are accepted.

    The first SIGTERM or SIGINT lets running requests finish (at most ``drain_s``) and refuses new
    ones; the second ends all at once. Call it in the main thread. ``first`` is the core that runs
    already, where one does.

    Raises ``EngineError`` when the server cannot start, or when its core has died for good.
    """
    with listening_socket(settings.host, settings.port, EngineError) as listener:
        _allow_many_connections()
        core = CoreClient(model, tokenizer)
        supervisor = Supervisor(build, core, settings.max_restarts, first)
        config = uvicorn.Config(
            create_app(core, settings),
            http=GuardedProtocol,
            access_log=False,
            log_level="warning",
            ws="none",
            timeout_graceful_shutdown=CLOSE_CONNECTIONS_S,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        server = CoreServer(config, core, supervisor, settings, lambda: on_ready(url_of(listener)))
        asyncio.run(server.serve(sockets=[listener]))


def _allow_many_connections() -> None:
    """Let this process open as many files as the system allows it, instead of the usual 1,024."""
    if resource is not None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class CoreServer(uvicorn.Server):
    """Uvicorn with a core behind it, which ends as ``serve_core`` promises."""

    def __init__(
        self,
        config: uvicorn.Config,
        core: CoreClient,
        supervisor: Supervisor,
        settings: HttpSettings,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._core = core
        self._supervisor = supervisor
        self._settings = settings
        self._on_ready = on_ready
        self._tasks: list[asyncio.Task[None]] = []
        self._error: EngineError | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal comes or the core has died for good.

        Raises ``EngineError`` in the latter case.
        """
        try:
            await super().serve(sockets)
        finally:
            for task in self._tasks:
                task.cancel()
            self._supervisor.close()
        if self._error:
            raise self._error

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM while the server runs."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, start the core, and call ``on_ready`` once it takes requests."""
        await super().startup(sockets)
        jobs = (self._keep_core(), watch(self._core, self._settings.step_limit_s), self._announce())
        self._tasks += [asyncio.create_task(job) for job in jobs]

    def _on_signal(self) -> None:
        stop = self._end_now() if self._core.draining else self._drain()
        self._core.draining = True
        self._tasks.append(asyncio.create_task(stop))

    async def _announce(self) -> None:
        await self._core.ready.wait()
        self._on_ready()

    async def _keep_core(self) -> None:
        try:
            await self._supervisor.run()
        except EngineError as error:
            self._error = error
            if self._core.ready.is_set():
                await asyncio.sleep(DEATH_LINGER_S)
            self.should_exit = True

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._settings.drain_s):
                await self._core.idle.wait()
        except TimeoutError:
            self._tell_the_end()
        self.should_exit = True

    async def _end_now(self) -> None:
        """End all streams with an error event; cut off a client that does not read it."""
        self._tell_the_end()
        self.should_exit = True
        await asyncio.sleep(ABORT_CONNECTIONS_S)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def _tell_the_end(self) -> None:
        self._core.end_all(Ended("shutting down", "the server is shutting down"))
