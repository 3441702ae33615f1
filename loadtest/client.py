"""A load test: replay a trace against a live endpoint, open loop, and keep what every client saw.

Clock: ``time.perf_counter_ns`` everywhere, zero recorded in ``Run.meta`` beside the wall time, so
that a server on the same machine can align its own log.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import httpx
import pandas as pd

from loadtest.endpoint import Endpoint, client_settings
from loadtest.loop_watch import LoopWatch, quiet_gc
from loadtest.open_loop import OpenLoop
from loadtest.records import delivered, requests_frame
from loadtest.schedule import Send, build_schedule, oversized
from sim.run import Run, machine_facts
from workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How the load is sent.

    ``timeout_s`` bounds a whole request, ``connect_timeout_s`` its connection. The clock starts
    ``lead_s`` after everything is ready and ``warm_connections`` are open. ``give_up_after``
    refused connections in a row end the test.
    """

    timeout_s: float = 600.0
    connect_timeout_s: float = 10.0
    lead_s: float = 0.2
    warm_connections: int = 1
    give_up_after: int = 10
    progress_every_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a running load test stands; ``ended`` includes ``failed``."""

    elapsed_s: float
    total: int
    sent: int
    ended: int
    failed: int


OnProgress = Callable[[Progress], None]

_KEEPALIVE_S = 2.0
"""Shorter than the 5 s after which common servers close an idle connection, so as not to race."""


def run_load_test(
    endpoint: Endpoint,
    trace: Trace,
    *,
    options: LoadOptions | None = None,
    on_progress: OnProgress | None = None,
) -> Run:
    """Send every request of ``trace`` at its arrival time and return what came back.

    Ctrl-C stops sending, cancels what is in flight and returns the records so far; so does an
    endpoint that refuses ``give_up_after`` connections in a row (``extra["delivered"]`` has
    ``interrupted`` and ``stopped``). Raises ``LoadTestError`` for an empty trace.
    """
    options = options or LoadOptions()
    sends = build_schedule(trace, endpoint)
    with quiet_gc():
        loop, watch, cpu_share = asyncio.run(_drive(endpoint, sends, options, on_progress))
    unsent = loop.stopped or ""
    requests, first_messages = requests_frame(sends, loop.exchanges, loop.zero_ns, unsent)
    outcome = {
        **delivered(requests, watch.oversleeps_s, cpu_share),
        "first_messages": first_messages,
        "interrupted": loop.interrupted,
        "stopped": loop.stopped,
    }
    zero = {
        "clock_zero_perf_counter_s": loop.zero_ns / 1e9,
        "clock_zero_unix_s": loop.zero_unix_s,
    }
    meta = {**machine_facts(), **zero}
    scenario = _scenario(endpoint, trace, options)
    return Run("loadtest", requests, pd.DataFrame(), scenario, meta, {"delivered": outcome})


async def _drive(
    endpoint: Endpoint, sends: list[Send], options: LoadOptions, on_progress: OnProgress | None
) -> tuple[OpenLoop, LoopWatch, float]:
    async with _client(endpoint, options) as client:
        await _warm_up(client, endpoint, options.warm_connections)
        loop = OpenLoop(
            client,
            endpoint.url,
            sends,
            timeout_s=options.timeout_s,
            give_up_after=options.give_up_after,
        )
        watch = LoopWatch()
        with _interrupts(loop), _progress(loop, options, on_progress), watch.running():
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            await loop.run(options.lead_s)
            cpu_share = (time.process_time() - cpu_s) / (time.perf_counter() - wall_s)
    return loop, watch, cpu_share


def _client(endpoint: Endpoint, options: LoadOptions) -> httpx.AsyncClient:
    """No limit on connections, no timeout but that of connecting: ours covers the whole request."""
    settings = client_settings(endpoint.base_url)
    settings["headers"] |= {"Content-Type": "application/json", "Accept": "text/event-stream"}
    limits = httpx.Limits(keepalive_expiry=_KEEPALIVE_S)
    timeout = httpx.Timeout(None, connect=options.connect_timeout_s)
    return httpx.AsyncClient(limits=limits, timeout=timeout, **settings)


async def _warm_up(client: httpx.AsyncClient, endpoint: Endpoint, connections: int) -> None:
    """Open connections, and load what httpx loads on its first request, before the clock starts."""
    asks = (client.get(f"{endpoint.base_url}/models") for _ in range(connections))
    await asyncio.gather(*asks, return_exceptions=True)


@contextlib.contextmanager
def _interrupts(loop: OpenLoop) -> Iterator[None]:
    """Ctrl-C ends the load test in order, once; the second one is Python's own."""
    events = asyncio.get_running_loop()

    def stop() -> None:
        events.remove_signal_handler(signal.SIGINT)
        loop.interrupt()

    # Only the main thread, and not every platform, can take signals here.
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        events.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            events.remove_signal_handler(signal.SIGINT)


@contextlib.contextmanager
def _progress(
    loop: OpenLoop, options: LoadOptions, on_progress: OnProgress | None
) -> Iterator[None]:
    if on_progress is None:
        yield
        return
    task = asyncio.ensure_future(_report(loop, options.progress_every_s, on_progress))
    try:
        yield
    finally:
        task.cancel()
        on_progress(_state(loop))


async def _report(loop: OpenLoop, every_s: float, on_progress: OnProgress) -> None:
    while True:
        await asyncio.sleep(every_s)
        on_progress(_state(loop))


def _state(loop: OpenLoop) -> Progress:
    elapsed_s = (time.perf_counter_ns() - loop.zero_ns) / 1e9
    return Progress(max(elapsed_s, 0.0), len(loop.exchanges), loop.sent, loop.ended, loop.failed)


def _scenario(endpoint: Endpoint, trace: Trace, options: LoadOptions) -> dict[str, Any]:
    notes = list(trace.notes)
    if too_long := oversized(trace, endpoint):
        notes.append(f"{too_long} requests are longer than max_model_len {endpoint.max_model_len}")
    return {
        "endpoint": asdict(endpoint),
        "trace": trace.source,
        "requests": len(trace),
        "rate_per_s": trace.rate_per_s,
        "notes": notes,
        "options": asdict(options),
    }
