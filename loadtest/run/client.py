"""A load test: send a trace to a live endpoint, and record what every client saw.

All stamps are ``time.perf_counter_ns``. ``Run.meta`` has the zero on that clock and in Unix time,
so that a server on the same machine can align its own log.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.options import LoadOptions
from servetwin.loadtest.plan.endpoint_limits import oversized
from servetwin.loadtest.plan.request_dependencies import begun_before
from servetwin.loadtest.plan.schedule import ClockZero, build_schedule, expected_peak_tokens_per_s
from servetwin.loadtest.report.records import delivered, outages, requests_frame
from servetwin.loadtest.run.event_loop import quiet_gc, run_fast, signals_deferred, stop_signals
from servetwin.loadtest.run.journal import Journal
from servetwin.loadtest.run.node_clock import clock_facts
from servetwin.loadtest.run.progress import OnProgress, Progress, progress_reports
from servetwin.loadtest.run.worker import WorkerJob
from servetwin.loadtest.run.worker_client import WorkerClient, WorkerResult
from servetwin.loadtest.run.worker_pool import merged, run_workers, worker_links
from servetwin.sim.records.columns import Frame
from servetwin.sim.records.run import Run, machine_facts
from servetwin.sim.records.tasks import task_columns
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.graphs.lanes import LaneSource
from servetwin.workloads.graphs.task_graph import TaskGraph
from servetwin.workloads.request import CANCELLED_BY_TEST
from servetwin.workloads.trace import Trace

__all__ = ["LoadOptions", "OnProgress", "Progress", "load_scenario", "run_load_test"]


def run_load_test(
    endpoint: Endpoint,
    trace: Trace,
    *,
    options: LoadOptions | None = None,
    on_progress: OnProgress | None = None,
    journal: Journal | None = None,
) -> Run:
    """Send every request of ``trace`` at its time and return what came back.

    The time of a request is its arrival, or its delay after its parent's answer in a closed loop
    (``LoadOptions.closed_loop``). An endpoint without a salt gets a random one, so that no cache
    knows the prompts of an earlier load.

    Ctrl-C and SIGTERM stop sending, cancel what is in flight and return the records so far. An
    endpoint that refuses all connections for ``give_up_after_s`` stops the sending too
    (``extra["delivered"]`` has ``interrupted`` and ``stopped``). What has ended by then goes into
    ``journal`` each second. Raises ``LoadTestError`` for an empty trace.
    """
    options, endpoint = options or LoadOptions(), endpoint.salted()
    _require_one_answer_each(trace)
    if options.duration_s is not None:
        closed_loop = options.follows(trace)
        trace = begun_before(trace, options.duration_s, closed_loop=closed_loop)
    job, client = WorkerJob(endpoint, trace, options, journal is not None), None
    if journal:
        journal.begin(load_scenario(endpoint, trace, options, len(trace)), _salted_meta(endpoint))
    with worker_links(job) as links:
        if links:
            zero, results = asyncio.run(run_workers(job, links, on_progress, journal))
        else:
            zero, client = _run_here(job, on_progress, journal)
    import pandas as pd  # not beside the load

    with signals_deferred() as deferred:
        results = [client.result()] if client else results
        requests, extra = _recorded(job, results, client)
        scenario = load_scenario(endpoint, trace, options, len(requests))
        meta = {**_salted_meta(endpoint), **_meta(zero, job, results)}
        run = Run("loadtest", requests, pd.DataFrame(), scenario, meta, extra)
    run.extra["delivered"]["interrupted"] |= deferred.is_set()
    return run


def _recorded(
    job: WorkerJob, results: Sequence[WorkerResult], client: WorkerClient | None
) -> tuple[Frame, dict[str, Any]]:
    """Return the requests of all processes, and what was delivered."""
    endpoint, trace, options, _ = job
    rows = merged([result.rows for result in results])
    requests = requests_frame(rows, warm_up_s=options.warm_up_s)
    extra = {"delivered": delivery(requests, results, forced=endpoint.force_length)}
    lanes = client.schedule.source if client and trace.lanes else None
    if client and isinstance(lanes, LaneSource):
        tasks = task_columns(requests, client.requests(), lanes, cached_answers=False)
        requests = requests.assign(**tasks)
        interrupted = "interrupted" if extra["delivered"]["interrupted"] else None
        extra["lanes"] = _lane_figures(lanes, interrupted or results[0].stopped)
    elif options.follows(trace) and not options.concurrency:
        requests = _with_tasks_of(trace, requests)
    return requests, extra


def _require_one_answer_each(trace: Trace) -> None:
    """Raise ``LoadTestError`` where a request wants several answers."""
    several = next((request for request in trace if request.samples > 1), None)
    if several is not None:
        raise LoadTestError(
            f"request {several.request_id}: it wants {several.samples} answers, and a load test "
            "asks for one each; leave samples out of the trace, or send it as several requests"
        )


def _run_here(
    job: WorkerJob, on_progress: OnProgress | None, journal: Journal | None
) -> tuple[ClockZero, WorkerClient]:
    """Send the trace from this process."""
    endpoint, trace, options, has_journal = job
    listener = _with_journal(journal, on_progress) if journal else on_progress

    async def send_all() -> tuple[ClockZero, WorkerClient]:
        async with WorkerClient(endpoint, schedule, options, journal=has_journal) as client:
            reports = progress_reports(client.progress, options.progress_every_s, listener)
            with stop_signals(client.interrupt), reports:
                zero = ClockZero.after(options.lead_s)
                if journal:
                    journal.started(zero)
                await client.run(zero)
        return zero, client

    schedule = build_schedule(trace, endpoint, options)
    with quiet_gc():
        return run_fast(send_all())


def _lane_figures(lanes: LaneSource[Any], stopped: str | None) -> dict[str, Any]:
    """Return what became of the replays; a run that was ``stopped`` ended before its time."""
    lanes.ended_early = lanes.ended_early or (stopped and f"the run was {stopped}")
    return lanes.figures()


def _with_tasks_of(trace: Trace, requests: Frame) -> Frame:
    """Add the tasks of the requests, which were sent in the order of ``scheduled_s``."""
    by_id = {request.request_id: request for request in trace}
    names = requests.sort_values("scheduled_s", kind="stable")["request_id"]
    sent = [by_id.pop(name) for name in names] + [*by_id.values()]
    graph = TaskGraph(trace, lambda request: request)
    return requests.assign(**task_columns(requests, sent, graph, cached_answers=False))


def _with_journal(journal: Journal, on_progress: OnProgress | None) -> OnProgress:
    """Return a listener that appends to the journal before it calls ``on_progress``."""

    def listen(state: Progress) -> None:
        journal.append(state.journal)
        if on_progress:
            on_progress(state)

    return listen


def delivery(requests: Frame, results: Sequence[WorkerResult], *, forced: bool) -> dict[str, Any]:
    """Return ``delivered`` of all processes, and what went wrong in them.

    ``first_messages`` are by kind of failure. Requests on which the test itself hung up are no
    failures and are counted apart.
    """
    oversleeps_s = [*chain.from_iterable(result.oversleeps_s for result in results)]
    messages = [*chain.from_iterable(r.first_messages.items() for r in reversed(results))]
    cpu_share = max(result.cpu_share for result in results)
    figures = delivered(requests, oversleeps_s, cpu_share, forced)
    hung_up = figures["failures"].pop(CANCELLED_BY_TEST, 0)
    return {
        **figures,
        "cancelled_by_test": hung_up,
        "retries": int((requests["attempts"] - 1).sum()),
        "too_late": sum(result.too_late for result in results),
        "processes": len(results),
        "lost_processes": sum(result.lost for result in results),
        "resent": sum(result.resent for result in results),
        "first_messages": dict(messages),
        "interrupted": any(result.interrupted for result in results),
        "outages": outages(requests),
        "stopped": next((result.stopped for result in results if result.stopped), None),
    }


def _salted_meta(endpoint: Endpoint) -> dict[str, Any]:
    """Return what ``meta.json`` has from the start: the machine, and the salt of the prompts."""
    return {**machine_facts(), "prompt_salt": endpoint.salt}


def _meta(zero: ClockZero, job: WorkerJob, results: Sequence[WorkerResult]) -> dict[str, Any]:
    """Return the zero on both clocks, and what the client consisted of."""
    client = next((result for result in results if not result.lost), results[0])
    return {
        "clock_zero_perf_counter_s": zero.perf_counter_ns / 1e9,
        "clock_zero_unix_s": zero.unix_s,
        "client": {
            "transport": client.transport,
            "event_loop": client.event_loop,
            "processes": len(results),
            "peak_tokens_per_s": expected_peak_tokens_per_s(job.trace, job.options),
            "workers": [clock_facts(result.clocks) for result in results if result.clocks],
        },
    }


def load_scenario(
    endpoint: Endpoint, trace: Trace, options: LoadOptions, requests: int
) -> dict[str, Any]:
    """Return what ``scenario.yaml`` says of a load test."""
    notes = list(trace.notes)
    if too_long := oversized(trace, endpoint):
        notes.append(f"{too_long} requests are longer than max_model_len {endpoint.max_model_len}")
    if endpoint.insecure:
        notes.append("the certificate of the server was not verified (--insecure)")
    return {
        "endpoint": asdict(endpoint),
        "trace": trace.source,
        "requests": requests,
        "rate_per_s": None if options.concurrency or trace.lanes else trace.rate_per_s,
        "lanes": trace.lanes and asdict(trace.lanes),
        "closed_loop": options.follows(trace),
        "notes": notes,
        "options": {**asdict(options), "proxy": bool(options.proxy)},
    }
