"""A load test: send a trace to a live endpoint, and keep what every client saw.

Clock: ``time.perf_counter_ns`` everywhere, zero recorded in ``Run.meta`` beside the wall time, so
that a server on the same machine can align its own log.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

import pandas as pd

from loadtest.endpoint import Endpoint
from loadtest.options import LoadOptions, OnProgress, Progress
from loadtest.plan.request_dependencies import begun_before
from loadtest.plan.schedule import ClockZero, build_schedule, expected_peak_tokens_per_s, oversized
from loadtest.report.records import delivered, requests_frame
from loadtest.run.event_loop import run_fast
from loadtest.run.loop_watch import quiet_gc
from loadtest.run.progress import progress
from loadtest.run.stop_signals import signals_deferred, stop_signals
from loadtest.run.worker_client import WorkerClient, WorkerResult
from loadtest.run.worker_pool import merged, processes_for, run_workers
from sim.records.metrics import CANCELLED_BY_TEST
from sim.records.run import Run, machine_facts
from workloads.trace import Trace

HandIn = Callable[[], list[WorkerResult]]
"""Gives what every process measured, once all is over."""

__all__ = ["LoadOptions", "OnProgress", "Progress", "run_load_test"]


def run_load_test(
    endpoint: Endpoint,
    trace: Trace,
    *,
    options: LoadOptions | None = None,
    on_progress: OnProgress | None = None,
) -> Run:
    """Send every request of ``trace`` at its time and return what came back.

    That is its arrival, or its delay after its parent's answer where ``options`` say so; see there
    too for what else is possible.

    Ctrl-C and SIGTERM stop sending, cancel what is in flight and return the records so far; so
    does an endpoint that refuses ``give_up_after`` connections in a row (``extra["delivered"]``
    has ``interrupted`` and ``stopped``). Raises ``LoadTestError`` for an empty trace.
    """
    options = options or LoadOptions()
    if options.duration_s is not None:
        closed_loop = options.follows(trace)
        trace = begun_before(trace, options.duration_s, closed_loop=closed_loop)
    processes = processes_for(trace, options)
    if processes == 1:
        zero, hand_in = _run_here(endpoint, trace, options, on_progress)
    else:
        zero, hand_in = _run_workers(endpoint, trace, options, processes, on_progress)
    with signals_deferred() as deferred:
        parts = hand_in()
        rows = merged([part.rows for part in parts])
        requests = requests_frame(rows, warm_up_s=options.warm_up_s)
        run = Run(
            "loadtest",
            requests,
            pd.DataFrame(),
            _scenario(endpoint, trace, options, len(requests)),
            {**machine_facts(), **_meta(zero, trace, options, parts)},
            {"delivered": _outcome(requests, parts)},
        )
    run.extra["delivered"]["interrupted"] |= deferred.came
    return run


def _run_here(
    endpoint: Endpoint, trace: Trace, options: LoadOptions, on_progress: OnProgress | None
) -> tuple[ClockZero, HandIn]:
    """One process needs no other."""

    async def drive() -> tuple[ClockZero, WorkerClient]:
        async with WorkerClient(endpoint, schedule, options) as driver:
            state = progress(driver.progress, options.progress_every_s, on_progress)
            with stop_signals(driver.interrupt), state:
                zero = ClockZero.after(options.lead_s)
                await driver.run(zero)
        return zero, driver

    schedule = build_schedule(trace, endpoint, options)
    with quiet_gc():
        zero, driver = run_fast(drive())
    return zero, lambda: [driver.part()]


def _run_workers(
    endpoint: Endpoint,
    trace: Trace,
    options: LoadOptions,
    processes: int,
    on_progress: OnProgress | None,
) -> tuple[ClockZero, HandIn]:
    zero, parts = asyncio.run(run_workers(endpoint, trace, options, processes, on_progress))
    return zero, lambda: parts


def _outcome(requests: pd.DataFrame, parts: Sequence[WorkerResult]) -> dict[str, Any]:
    """``delivered``, and what went wrong on the way; ``first_messages`` by kind of failure.

    Requests that the test itself hung up on are no failures; they are counted beside them.
    """
    oversleeps_s = [*chain.from_iterable(part.oversleeps_s for part in parts)]
    messages = [*chain.from_iterable(part.first_messages.items() for part in reversed(parts))]
    found = delivered(requests, oversleeps_s, max(part.cpu_share for part in parts))
    hung_up = found["failures"].pop(CANCELLED_BY_TEST, 0)
    return {
        **found,
        "cancelled_by_test": hung_up,
        "retries": int((requests["attempts"] - 1).sum()),
        "too_late": sum(part.too_late for part in parts),
        "processes": len(parts),
        "lost_processes": sum(part.lost for part in parts),
        "resent": sum(part.resent for part in parts),
        "first_messages": dict(messages),
        "interrupted": any(part.interrupted for part in parts),
        "stopped": next((part.stopped for part in parts if part.stopped), None),
    }


def _meta(
    zero: ClockZero, trace: Trace, options: LoadOptions, parts: Sequence[WorkerResult]
) -> dict[str, Any]:
    """The zero on both clocks, and what the client was made of."""
    told = next((part for part in parts if not part.lost), parts[0])
    return {
        "clock_zero_perf_counter_s": zero.perf_counter_ns / 1e9,
        "clock_zero_unix_s": zero.unix_s,
        "client": {
            "transport": told.transport,
            "event_loop": told.event_loop,
            "processes": len(parts),
            "peak_tokens_per_s": expected_peak_tokens_per_s(trace, options),
        },
    }


def _scenario(
    endpoint: Endpoint, trace: Trace, options: LoadOptions, requests: int
) -> dict[str, Any]:
    notes = list(trace.notes)
    if too_long := oversized(trace, endpoint):
        notes.append(f"{too_long} requests are longer than max_model_len {endpoint.max_model_len}")
    return {
        "endpoint": asdict(endpoint),
        "trace": trace.source,
        "requests": requests,
        "rate_per_s": None if options.concurrency else trace.rate_per_s,
        "closed_loop": options.follows(trace),
        "notes": notes,
        "options": {**asdict(options), "proxy": bool(options.proxy)},
    }
