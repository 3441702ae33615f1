"""A trace as the work of users: each sends its share, one conversation after the other.

A conversation is a request that stands alone, or all turns of a session: so a user is a person, or
an agent. All users begin together, and those with short answers end first: what is judged lies
between (``sim.experiments.how_many.Users.judged``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.generate import require_possible
from servetwin.workloads.generators.pauses import PauseDistribution
from servetwin.workloads.generators.resampled import Copies
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace

ROUNDS = 20
"""Conversations of each user, at least: a shorter trace is sent again."""
_THINK_STREAM = 2
"""Apart from the streams that the workload generators take from the same seed."""


def sent_by_users(
    trace: Trace, users: int, *, think: PauseDistribution | None = None, seed: int = 0
) -> Trace:
    """Give conversation i of the trace to user i mod ``users``, in the order of the trace.

    A user thinks, sends a conversation, and thinks again after its last answer; turns of a
    conversation keep their own pauses, where they have any. The first time user u of n thinks for
    u / n of its time, so that equal users do not begin as one. Conversation i has the same think
    time whatever the number of users. Arrivals are the earliest possible ones, as of a server that
    answers at once. Raises ``TraceError`` for a trace without requests, or without end.
    """
    if users < 1:
        raise TraceError(f"a closed loop wants at least 1 user, not {users}")
    copies = Copies(trace)
    if not len(copies):
        raise TraceError(f"{trace.source}: no request that a user could send")
    each = max(ROUNDS, len(copies) // users)
    require_possible(each * users * len(trace) // len(copies))
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_THINK_STREAM,)))
    pauses = _Pauses(think, rng)
    requests: list[Request] = []
    ends: list[Request | None] = [None] * users
    for number in range(each * users):
        conversation = copies.of(number % len(copies), number // len(copies))
        user = number % users
        begun = (user + 1) / users
        sent = list(_sent(conversation, ends[user], pauses, f"user-{user + 1}", begun))
        ends[user] = sent[-1]
        requests += sent
    requests.sort(key=lambda request: request.arrival_s)
    thinking = f"{think}, seed {seed}" if think else "no think time"
    note = f"sent by {counted(users, 'user')}, each waits for every answer ({thinking})"
    return replace(trace, timed=True).replaced(requests, note)


class _Pauses:
    """Draws one think time after the other, in blocks."""

    _BLOCK = 1024

    def __init__(self, think: PauseDistribution | None, rng: np.random.Generator) -> None:
        self._think, self._rng = think, rng
        self._drawn: list[float] = []

    def next_s(self) -> float:
        """Return the next one; 0 without thinking."""
        if self._think is None:
            return 0.0
        if not self._drawn:
            self._drawn = self._think.sample(self._BLOCK, self._rng).round(6).tolist()[::-1]
        return self._drawn.pop()


def _sent(
    conversation: Sequence[Request],
    before: Request | None,
    pauses: _Pauses,
    user: str,
    begun: float,
) -> Iterator[Request]:
    """Yield a conversation that a user begins after the request ``before``.

    Without one it begins after the share ``begun`` of its think time.
    """
    sent: dict[str, Request] = {}
    for request in conversation:
        think_s = pauses.next_s()  # One for each request, whether it is needed or not.
        parent = before if request.parent_id is None else sent[request.parent_id]
        own_s = request.delay_s if request.parent_id is not None else None
        delay_s = think_s if own_s is None else own_s
        moved = replace(
            request,
            arrival_s=round(parent.arrival_s + delay_s if parent else begun * delay_s, 6),
            parent_id=parent.request_id if parent else None,
            delay_s=delay_s if parent else None,
            tenant=user,
        )
        sent[request.request_id] = moved
        yield moved
