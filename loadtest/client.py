"""A load test: replay a trace against a live endpoint, open loop, and keep what every client saw.

Clock: ``time.perf_counter_ns`` everywhere, zero recorded in ``Run.meta`` beside the wall time, so
that a server on the same machine can align its own log.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

import pandas as pd

from loadtest.driver import Driver, Part
from loadtest.endpoint import Endpoint
from loadtest.event_loop import run_fast
from loadtest.loop_watch import quiet_gc
from loadtest.options import LoadOptions, OnProgress, Progress
from loadtest.progress import progress
from loadtest.records import delivered, requests_frame
from loadtest.schedule import Zero, build_schedule, oversized, peak_tokens_per_s
from loadtest.shards import merged, processes_for, run_shards
from loadtest.stop_signals import stop_signals
from sim.run import Run, machine_facts
from workloads.trace import Trace

__all__ = ["LoadOptions", "OnProgress", "Progress", "run_load_test"]


def run_load_test(
    endpoint: Endpoint,
    trace: Trace,
    *,
    options: LoadOptions | None = None,
    on_progress: OnProgress | None = None,
) -> Run:
    """Send every request of ``trace`` at its arrival time and return what came back.

    Ctrl-C and SIGTERM stop sending, cancel what is in flight and return the records so far; so
    does an endpoint that refuses ``give_up_after`` connections in a row (``extra["delivered"]``
    has ``interrupted`` and ``stopped``). Raises ``LoadTestError`` for an empty trace.
    """
    options = options or LoadOptions()
    processes = processes_for(trace, options)
    if processes == 1:
        zero, parts = _run_here(endpoint, trace, options, on_progress)
    else:
        shards = run_shards(endpoint, trace, options, processes, on_progress)
        zero, parts = asyncio.run(shards)
    requests = requests_frame(merged([part.rows for part in parts]))
    return Run(
        "loadtest",
        requests,
        pd.DataFrame(),
        _scenario(endpoint, trace, options),
        {**machine_facts(), **_meta(zero, trace, parts)},
        {"delivered": _outcome(requests, parts)},
    )


def _run_here(
    endpoint: Endpoint, trace: Trace, options: LoadOptions, on_progress: OnProgress | None
) -> tuple[Zero, list[Part]]:
    """One process needs no other."""

    async def drive() -> tuple[Zero, Driver]:
        async with Driver(endpoint, sends, options) as driver:
            state = progress(driver.progress, options.progress_every_s, on_progress)
            with stop_signals(driver.interrupt), state:
                zero = Zero.after(options.lead_s)
                await driver.run(zero)
        return zero, driver

    sends = build_schedule(trace, endpoint)
    with quiet_gc():
        zero, driver = run_fast(drive())
    return zero, [driver.part()]


def _outcome(requests: pd.DataFrame, parts: Sequence[Part]) -> dict[str, Any]:
    """``delivered``, and what went wrong on the way; ``first_messages`` by kind of failure."""
    oversleeps_s = [*chain.from_iterable(part.oversleeps_s for part in parts)]
    messages = [*chain.from_iterable(part.first_messages.items() for part in reversed(parts))]
    return {
        **delivered(requests, oversleeps_s, max(part.cpu_share for part in parts)),
        "processes": len(parts),
        "lost_processes": sum(part.lost for part in parts),
        "resent": sum(part.resent for part in parts),
        "first_messages": dict(messages),
        "interrupted": any(part.interrupted for part in parts),
        "stopped": next((part.stopped for part in parts if part.stopped), None),
    }


def _meta(zero: Zero, trace: Trace, parts: Sequence[Part]) -> dict[str, Any]:
    """The zero on both clocks, and what the client was made of."""
    told = next((part for part in parts if not part.lost), parts[0])
    return {
        "clock_zero_perf_counter_s": zero.perf_counter_ns / 1e9,
        "clock_zero_unix_s": zero.unix_s,
        "client": {
            "transport": told.transport,
            "event_loop": told.event_loop,
            "processes": len(parts),
            "peak_tokens_per_s": peak_tokens_per_s(trace),
        },
    }


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
        "options": {**asdict(options), "proxy": bool(options.proxy)},
    }
