"""Replay requests through a scheduler and a step-time model."""

import time
from collections.abc import Callable, Generator, Iterable
from typing import Any

import simpy

from policies.block_keys import BlockKeys, PrefixKeys
from policies.protocols import Scheduler
from policies.sequence import Sequence
from sim.recorder import Recorder
from sim.replica import Replica, UrgentTimeout
from sim.run import Run
from sim.step_time import ApiLatency, StepNoise, StepTime
from workloads.request import Request

NO_LATENCY = ApiLatency()


def simulate(
    requests: Iterable[Request],
    scheduler: Scheduler,
    step_time: StepTime,
    *,
    api: ApiLatency = NO_LATENCY,
    noise: StepNoise | None = None,
    macro: bool = True,
    keep_records: bool = False,
    keys: BlockKeys | None = None,
    on_arrival: Callable[[int], None] | None = None,
) -> Run:
    """Run ``requests`` (in order of arrival) to the end and return what happened to each.

    ``macro`` runs repetitions of one batch as one event; turned off, every step is one. ``keys``
    names prompt blocks (by default, by the trace's prefix ids). ``keep_records`` keeps a full
    ``StepRecord`` per step in ``run.records`` (turns ``macro`` off). ``on_arrival`` is told how
    many requests have arrived, for progress.
    """
    env = simpy.Environment()
    recorder = Recorder(api, keep_records)
    replica = Replica(env, scheduler, step_time, recorder, noise, macro and not keep_records)
    memory = scheduler.memory
    if keys is None and memory.shares_prefixes:
        keys = PrefixKeys(memory.block_tokens)
    env.process(_arrivals(env, requests, replica, recorder, keys, on_arrival))
    started_s = time.perf_counter()
    env.run()
    wall_s = time.perf_counter() - started_s
    count = len(recorder.outcomes)
    speed = {
        "wall_s": wall_s,
        "requests_per_s": count / wall_s if wall_s > 0 else 0.0,
        "steps": recorder.total_steps,
    }
    extra: dict[str, Any] = {"simulation": speed}
    return Run(
        "simulation",
        recorder.requests_frame(),
        recorder.steps_frame(),
        scenario={},
        extra=extra,
        records=recorder.records,
    )


def as_sequence(request: Request, arrival_s: float, keys: BlockKeys | None) -> Sequence:
    """A request as the server sees it: its declared limit is the length that it will reach."""
    return Sequence(
        request.request_id,
        arrival_s,
        request.prompt_tokens,
        request.output_tokens,
        keys.of(request) if keys else [],
        request.priority,
    )


def _arrivals(
    env: simpy.Environment,
    requests: Iterable[Request],
    replica: Replica,
    recorder: Recorder,
    keys: BlockKeys | None,
    on_arrival: Callable[[int], None] | None,
) -> Generator[simpy.Event, Any, None]:
    for count, request in enumerate(requests, start=1):
        received_s = request.arrival_s + recorder.api.request_in_s(request.prompt_tokens)
        if received_s > env.now:
            yield UrgentTimeout(env, received_s - env.now)
        seq = as_sequence(request, env.now, keys)
        recorder.arrived(request, seq, replica.submit(seq))
        if on_arrival and count % 1000 == 0:
            on_arrival(count)
