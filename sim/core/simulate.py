"""Replay requests through a scheduler and a step-time model."""

import time
from collections.abc import Callable, Iterable
from functools import cache

from servetwin.policies.block_keys import BlockKeys, PrefixKeys
from servetwin.policies.protocols import KVMemory, Scheduler
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.environment import NEVER, Environment
from servetwin.sim.core.recorder import Recorder
from servetwin.sim.core.replica import Replica
from servetwin.sim.records.columns import stamps_of
from servetwin.sim.records.run import HANDOVER_COLUMNS, PAUSE_COLUMNS, Run
from servetwin.sim.step_times.acceptance import DraftVerifier
from servetwin.sim.step_times.step_time import (
    SECONDS_PER_TICK,
    ApiLatency,
    StepNoise,
    StepTime,
    to_ticks,
)
from servetwin.workloads.program.collector import no_garbage_collection
from servetwin.workloads.request import Request

# Receives, at a tick before that of the next request, a request and its row in the recorder.
ReceiveAt = Callable[[int, int, Request, int], None]


def send_at_stamps(
    requests: Iterable[Request], recorder: Recorder, receive_at: ReceiveAt,
    on_arrival: Callable[[int], None] | None = None,
) -> None:  # fmt: skip
    """Send ``requests``, which are in order of arrival, through one API process, in this order."""
    coming, api = iter(recorder.begin(requests)), recorder.api
    row, request = 0, next(coming, None)
    now = 0 if request is None else received_tick(request, api, 0)
    while request is not None:
        following = next(coming, None)
        then = NEVER if following is None else received_tick(following, api, now)
        receive_at(now, then, request, row)
        row += 1
        if on_arrival and not row % 1000:
            on_arrival(row)
        request, now = following, then


def received_tick(request: Request, api: ApiLatency | None, now: int) -> int:
    """Return when the servers have a request that comes after ``now``."""
    received_s = request.arrival_s
    if api is not None:
        received_s += api.request_in_s(request.prompt_tokens)
    tick = to_ticks(received_s)
    return tick if tick > now else now


def simulate(
    requests: Iterable[Request], scheduler: Scheduler, step_time: StepTime, *,
    api: ApiLatency | None = None, recorder: Recorder | None = None, noise: StepNoise | None = None,
    macro: bool = True, keep_records: bool = False, keep_usage: bool = False,
    keys: BlockKeys | None = None, on_arrival: Callable[[int], None] | None = None,
    verifier: DraftVerifier | None = None,
) -> Run:  # fmt: skip
    """Run ``requests`` (in order of arrival) to the end on one server.

    ``macro`` runs repetitions of one batch as one event; without it every step is an event.
    ``keys`` names prompt blocks (by default, by the prefix ids of the trace). ``keep_records``
    keeps a ``StepRecord`` per step in ``run.records`` (and turns ``macro`` off), ``keep_usage``
    the ``KVUsage`` at the beginning of every row of ``run.steps``. ``on_arrival`` receives the
    number of requests that have arrived, every thousand. A ``recorder`` replaces ``api``,
    ``keep_records`` and ``keep_usage``. ``verifier`` draws the accepted drafts, for a scheduler
    that verifies drafts.
    """
    env = Environment()
    recorder = recorder or Recorder(api, keep_records=keep_records, keep_usage=keep_usage)
    macro = macro and not keep_records
    replica = Replica(
        env, scheduler, step_time, recorder, noise, macro, verifier=verifier, on_demand=True
    )
    keys = keys or keys_of(scheduler.memory)

    def receive_at(now: int, then: int, request: Request, row: int) -> None:
        seq = as_sequence(request, now * SECONDS_PER_TICK, keys, row)
        if recorder.api is not None:
            recorder.arrived(seq, replica.index)
        if refusal := replica.submit_at(seq, now):
            recorder.refused(seq, refusal)
        replica.catch_up(then)

    wall_s = run_to_end(lambda: send_at_stamps(requests, recorder, receive_at, on_arrival))
    return finished_run(recorder, wall_s)


def run_to_end(run: Callable[[], None]) -> float:
    """Run a simulation to its end; return the wall-clock seconds that took."""
    with no_garbage_collection():
        started_s = time.perf_counter()
        run()
        return time.perf_counter() - started_s


def finished_run(recorder: Recorder, wall_s: float) -> Run:
    """Return the run of a simulation that has ended, with its speed in ``extra``."""
    count, steps = len(recorder.requests), recorder.steps_table()
    per_s = count / wall_s if wall_s > 0 else 0.0
    speed = {"wall_s": wall_s, "requests_per_s": per_s, "steps": int(steps["steps"].sum())}
    return Run(
        "simulation", recorder.requests_table(), steps, scenario={}, extra={"simulation": speed},
        records=recorder.records, pauses=stamps_of(recorder.pauses, PAUSE_COLUMNS),
        handovers=stamps_of(recorder.handovers, HANDOVER_COLUMNS),
    )  # fmt: skip


_prefix_keys = cache(PrefixKeys)  # they have no state, and equal ones are one


def keys_of(memory: KVMemory) -> BlockKeys | None:
    """Return the names of prompt blocks, by the ids of the trace, where a memory shares them."""
    if not memory.shares_prefixes:
        return None
    return _prefix_keys(memory.block_tokens, getattr(memory, "apart_by_adapter", False))


def as_sequence(
    request: Request, arrival_s: float, keys: BlockKeys | None, number: int = 0
) -> Sequence:
    """Return the sequence that a server makes of a request; it ends at its declared limit."""
    seq = Sequence(  # names of arguments would double its cost
        request.request_id, arrival_s, request.prompt_tokens, request.output_tokens, (),
        request.priority, number, request.samples, request.tenant, request.estimated_output_tokens,
    )  # fmt: skip
    if keys is not None:
        seq.block_keys, seq.key_blocks = keys.of(request)
        seq.names_answer = bool(request.answer_block_ids)
    if request.model is not None:
        seq.adapter = request.model
    if request.ttft_slo_s is not None:
        seq.deadline_s = arrival_s + request.ttft_slo_s
    return seq
