"""A closed loop of users: each sends its requests one after the other.

It is a trace in which each request of a user follows the one before, so the simulator replays it
without change, and worker processes can share its users.
"""

from dataclasses import replace
from math import inf

import numpy as np

from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.generators.pauses import PauseDistribution
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace

# Apart from the streams that the workload generators take from the same seed.
_THINK_STREAM = 1


def with_users(
    trace: Trace,
    users: int,
    *,
    think: PauseDistribution | None = None,
    ramp_up_s: float = 0.0,
    seed: int = 0,
) -> Trace:
    """Give request i of the trace to user i mod ``users``, in the order of the trace.

    The first request of user u is due at u / ``users`` of ``ramp_up_s``, each later one a ``think``
    time after the one before. Arrivals are the earliest possible ones, as of a server that answers
    at once. Raises ``LoadTestError`` where there are fewer requests than users.
    """
    if not ramp_up_s < inf:
        raise LoadTestError(f"--ramp-up {ramp_up_s:g}: must be 0 s or more")
    if len(trace) < users:
        has = f"{trace.source} has {counted(len(trace), 'request')}, fewer than one for each user"
        raise LoadTestError(f"--concurrency {users}: {has}")
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_THINK_STREAM, users)))
    thinks_s = think.sample(len(trace), rng).round(6) if think else np.zeros(len(trace))
    requests: list[Request] = []
    for row, (request, think_s) in enumerate(zip(trace, thinks_s.tolist(), strict=True)):
        before = requests[row - users] if row >= users else None
        start_s = before.arrival_s + think_s if before else row * (ramp_up_s / users)
        sent = replace(
            request,
            arrival_s=round(start_s, 6),
            parent_ids=(before.request_id,) if before else (),
            delay_s=think_s,
            tenant=f"user-{row % users + 1}",
            turn=None,
        )
        requests.append(sent)
    requests.sort(key=lambda request: request.arrival_s)
    thinking = f"{think}, seed {seed}" if think else "no think time"
    note = f"sent by {counted(users, 'user')}, each waits for every answer ({thinking})"
    return trace.replaced(requests, note)
