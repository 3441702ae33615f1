"""Keep a core running: start its process, and start it again when it has died."""

import asyncio
import time

from servetwin.engine.core.core import CoreClock
from servetwin.engine.core.core_client import STOP_CORE_S, CoreClient, CoreLink
from servetwin.engine.core.core_process import BuildCore, StartedCore
from servetwin.workloads.errors import EngineError

_CHECK_EVERY_S = 1.0
# Within the limit, however short it is.
_MIN_CHECKS = 5


async def watch(client: CoreClient, step_limit_s: float) -> None:
    """Tell ``client`` when its core has been silent for ``step_limit_s``, and when it does again.

    What counts are the checks of this loop, so that a pause of this process is not blamed on the
    core.
    """
    interval_s = min(_CHECK_EVERY_S, step_limit_s / _MIN_CHECKS)
    why = f"the engine core has not ended a step for {step_limit_s:g} s (--step-limit)"
    silent_checks, is_silent = 0, False
    while True:
        messages = client.messages
        if not is_silent:
            client.ping()
        await asyncio.sleep(interval_s)
        is_silent = client.messages == messages and client.state in ("ready", "stalled")
        silent_checks = silent_checks + 1 if is_silent else 0
        client.set_stalled(why if silent_checks * interval_s >= step_limit_s else None)


# Restarts longer ago than this count no more.
RESTART_WINDOW_S = 300.0
# Before the first restart; doubled before each further one within the window.
RESTART_PAUSE_S = 0.2


class Supervisor:
    """Owns the core's process; at most ``max_restarts`` times in ``RESTART_WINDOW_S`` a new one.

    A core that has never been ready is not started again: what is wrong with it stays wrong.
    """

    def __init__(
        self,
        build: BuildCore,
        client: CoreClient,
        max_restarts: int,
        first: StartedCore | None = None,
    ) -> None:
        """Start a core by ``build`` whenever one is needed; ``first`` runs already."""
        self.link: CoreLink | None = None
        self._build = build
        self._client = client
        self._max_restarts = max_restarts
        self._first = first
        self._clock = first.clock if first else CoreClock()
        self._restarts_s: list[float] = []

    async def run(self) -> None:
        """Keep the core running until cancelled.

        Raises ``EngineError`` when it could not start, or has died too often.
        """
        while True:
            self.link = self._started()
            self._client.attach(self.link)
            await self._client.died.wait()
            await asyncio.to_thread(self.link.close, 1.0)
            self._check()
            self._client.expect()
            await asyncio.sleep(RESTART_PAUSE_S * 2 ** len(self._restarts_s))
            self._restarts_s.append(time.monotonic())

    def _started(self) -> CoreLink:
        core, self._first = self._first, None
        return CoreLink(core or StartedCore.start(self._build, self._clock))

    def close(self) -> None:
        """End the core: after its step, or by force. Call it last, on the event loop."""
        if self.link is not None:
            self.link.close(STOP_CORE_S if self._client.state == "ready" else 0.0)

    def _check(self) -> None:
        """Raise ``EngineError`` where the core may not be started again."""
        why = self._client.why_died
        if not self._client.ready.is_set():
            raise EngineError(why)
        assert self.link is not None
        why += f" (exit code {self.link.process.exitcode})"
        begin_s = time.monotonic() - RESTART_WINDOW_S
        self._restarts_s = [at_s for at_s in self._restarts_s if at_s > begin_s]
        if not self._max_restarts:
            raise EngineError(why)
        if len(self._restarts_s) >= self._max_restarts:
            raise EngineError(
                f"{why}; it was started again {len(self._restarts_s)} times within "
                f"{RESTART_WINDOW_S:g} s, and --max-restarts allows no more"
            )
