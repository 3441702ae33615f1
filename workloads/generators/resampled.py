"""Other traffic of the same kind: the arrivals of a trace, drawn anew in blocks of neighbours.

The circular block bootstrap (Künsch, "The jackknife and the bootstrap for general stationary
observations", 1989; Politis and Romano, "A circular block-resampling procedure for stationary
data", 1992). What is drawn is a conversation, or a request that stands alone, with the gap before
it: bursts stay together, and so do turns. A block is as long as gaps or lengths of neighbours
depend (``block_length``).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from math import ceil, log10, sqrt

import numpy as np
import numpy.typing as npt

from servetwin.workloads.block_ids import Ids
from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.arrivals import describe
from servetwin.workloads.generators.generate import require_possible
from servetwin.workloads.generators.pauses import PauseDistribution
from servetwin.workloads.graphs.links import links_of, tasks
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace

# Times the error of a correlation that is none: their c.
_SIGNIFICANT = 2.0
# The least number of correlations in a row that must be none.
_LEAST_RUN = 5


def block_length(series: npt.ArrayLike) -> int:
    """Return the length of blocks for a series, at least 1; 1 where neighbours do not depend.

    Short blocks lose the dependence, long ones leave few blocks to draw from. The length with the
    least error of a variance follows from the autocovariances: Politis and White, "Automatic
    block-length selection for the dependent bootstrap" (2004), with the correction of Patton,
    Politis and White (2009), for circular blocks.
    """
    values = np.asarray(series, dtype=float)
    count = len(values)
    off = values - values.mean() if count else values
    if count < 2 * _LEAST_RUN or not off.any():
        return 1
    reach = _reach(off)
    if reach == 0:
        return 1
    slope, level = 0.0, _covariance(off, 0)
    for lag in range(1, min(2 * reach, count - 1) + 1):
        weighted = 2 * min(1.0, 2 - lag / reach) * _covariance(off, lag)
        slope += weighted * lag
        level += weighted
    if level <= 0:
        return 1
    length = ceil(float((1.5 * (slope / level) ** 2 * count) ** (1 / 3)))
    longest = ceil(min(3 * sqrt(count), count / 3))
    return max(1, min(length, longest))


def _reach(off: npt.NDArray[np.float64]) -> int:
    """Return the last lag before a long run of correlations that are none."""
    count = len(off)
    run = max(_LEAST_RUN, ceil(sqrt(log10(count))))
    bound = _SIGNIFICANT * sqrt(log10(count) / count)
    last = 0
    for lag, correlation in _correlations(off, ceil(sqrt(count)) + run):
        if abs(correlation) > bound:
            last = lag
        elif lag - last >= run:
            break
    return last


def _correlations(off: npt.NDArray[np.float64], most: int) -> Iterator[tuple[int, float]]:
    variance = _covariance(off, 0)
    for lag in range(1, min(most, len(off) - 1) + 1):
        yield lag, _covariance(off, lag) / variance


def _covariance(off: npt.NDArray[np.float64], lag: int) -> float:
    return float(off[: len(off) - lag] @ off[lag:]) / len(off)


# A request and the later ones of its conversation, in the order of the trace.
Conversation = list[Request]


class Resampling:
    """Draws traces like ``trace``; it has at least two requests."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._conversations = _conversations(trace)
        starts_s = np.array([requests[0].arrival_s for requests in self._conversations])
        gaps_s = np.diff(starts_s)
        self._gaps_s = np.array([gaps_s.mean() if len(gaps_s) else 0.0, *gaps_s])
        tokens = [sum(r.total_tokens for r in requests) for requests in self._conversations]
        self._owners = _owners(self._conversations)
        self.block = max(block_length(self._gaps_s), block_length(tokens))

    def draw(self, rng: np.random.Generator) -> Trace:
        """Return a trace of as many conversations; copies of a request have ids of their own."""
        while True:
            trace = self._drawn(rng)
            if trace.span_s > 0 or not self._trace.span_s:
                return trace

    def _drawn(self, rng: np.random.Generator) -> Trace:
        size = len(self._conversations)
        starts = rng.integers(size, size=-(-size // self.block))
        places = ((starts[:, None] + np.arange(self.block)) % size).ravel()[:size]
        starts_s = np.cumsum(self._gaps_s[places]).tolist()
        numbers, requests = defaultdict[int, int](int), list[Request]()
        own_ids = _OwnIds(self._owners)
        for place, start_s in zip(places.tolist(), starts_s, strict=True):
            conversation, number = self._conversations[place], numbers[place]
            numbers[place] += 1
            later_s = start_s - conversation[0].arrival_s
            requests += _copied(conversation, later_s, number, own_ids)
        requests.sort(key=lambda request: request.arrival_s)
        return self._trace.replaced(requests, f"resampled in blocks of {self.block}")


def _copied(
    conversation: Conversation, later_s: float, copy: int, own_ids: "_OwnIds", mark: str = "~"
) -> Iterator[Request]:
    """Yield the requests of a copy of a conversation, which begins ``later_s`` later."""
    for request in conversation:
        moved = replace(request, arrival_s=request.arrival_s + later_s)
        if not copy:
            yield moved
            continue
        yield replace(
            moved,
            request_id=f"{request.request_id}{mark}{copy}",
            parent_ids=tuple(f"{parent}{mark}{copy}" for parent in request.parent_ids),
            prefix_block_ids=own_ids.of(request.prefix_block_ids, copy),
            answer_block_ids=own_ids.of(request.answer_block_ids, copy),
        )


def _conversations(trace: Trace) -> Sequence[Conversation]:
    if not any(trace.column("parent_ids")):
        return [[request] for request in trace]
    roots = tasks(links_of(trace))
    conversations: dict[str, Conversation] = {}
    for request in trace:
        conversations.setdefault(roots[request.request_id], []).append(request)
    return list(conversations.values())


def _owners(conversations: Sequence[Conversation]) -> Mapping[int, int]:
    """Return the conversation that alone has a block, by block; -1 where several have it."""
    owners: dict[int, int] = {}
    for place, requests in enumerate(conversations):
        for request in requests:
            for block in (*request.prefix_block_ids, *request.answer_block_ids):
                if owners.setdefault(block, place) != place:
                    owners[block] = -1
    return owners


class _OwnIds:
    """Gives blocks that a conversation shares with no other one new ids in each copy of it.

    Else a copy would find the whole prompt of the first one in the prefix cache.
    """

    def __init__(self, owners: Mapping[int, int]) -> None:
        self._owners = owners
        above = count(1 + max((0, *self._owners)))
        # Not below the others: sequences name blocks that are theirs alone by negative numbers.
        self._new_ids = defaultdict[tuple[int, int], int](above.__next__)

    def of(self, ids: Ids, copy: int) -> Ids:
        """Return the ids in a copy."""
        return tuple(self._new_ids[one, copy] if self._owners[one] >= 0 else one for one in ids)


# Think times that are drawn at a time.
_DRAWN = 1024
# Conversations of each user, at least, where nothing else is said.
ROUNDS = 20
# Apart from the streams that the workload generators take from the same seed.
_THINK_STREAM = 6


def sent_by_users(
    trace: Trace,
    users: int,
    *,
    think: PauseDistribution | None = None,
    seed: int = 0,
    rounds: int = ROUNDS,
) -> Trace:
    """Give conversation i of the trace to user i mod ``users``, in the order of the trace.

    A user thinks, sends a conversation, and thinks again after its last answer; turns of a
    conversation keep their own pauses, where they have any. The first time user u of n thinks for
    u / n of its time, so that equal users do not begin as one. Each sends ``rounds`` conversations
    at least: a shorter trace is sent again. Conversation i has the same think time whatever the
    number of users. Arrivals are the earliest possible ones, as of a server that
    answers at once. Raises ``TraceError`` for a trace without requests, or without end.
    """
    if users < 1:
        raise TraceError(f"a closed loop wants at least 1 user, not {users}")
    conversations = _conversations(trace)
    if not conversations:
        raise TraceError(f"{trace.source}: no request that a user could send")
    each = max(rounds, len(conversations) // users)
    require_possible(each * users * len(trace) // len(conversations))
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_THINK_STREAM,)))
    pauses_s = _pauses_s(think, rng)
    requests, own_ids = list[Request](), _OwnIds(_owners(conversations))
    ends: list[Sequence[Request]] = [()] * users
    for number in range(each * users):
        copy, place = divmod(number, len(conversations))
        conversation = list(_copied(conversations[place], 0.0, copy, own_ids, "+"))
        user = number % users
        begun = (user + 1) / users
        sent = list(_sent(conversation, ends[user], pauses_s, f"user-{user + 1}", begun))
        ends[user] = _last(sent)
        requests += sent
    requests.sort(key=lambda request: request.arrival_s)
    thinking = f"{describe(think)}, seed {seed}" if think else "no think time"
    note = f"sent by {counted(users, 'user')}, each waits for every answer ({thinking})"
    return replace(trace, timed=True).replaced(requests, note)


def _last(conversation: Sequence[Request]) -> list[Request]:
    """Return the requests that no other one follows."""
    followed = {parent for request in conversation for parent in request.parent_ids}
    return [request for request in conversation if request.request_id not in followed]


def _pauses_s(think: PauseDistribution | None, rng: np.random.Generator) -> Iterator[float]:
    """Yield one think time after the other, drawn in blocks; 0 without thinking."""
    while True:
        yield from [0.0] if think is None else think.sample(_DRAWN, rng).round(6).tolist()


def _sent(
    conversation: Sequence[Request],
    before: Sequence[Request],
    pauses_s: Iterator[float],
    user: str,
    begun: float,
) -> Iterator[Request]:
    """Yield a conversation that a user begins after the requests ``before``.

    Without any it begins after the share ``begun`` of its think time.
    """
    sent: dict[str, Request] = {}
    for request in conversation:
        think_s = next(pauses_s)  # One for each request, whether it is needed or not.
        own_s = request.delay_s if request.parent_ids else None
        delay_s = think_s if own_s is None else own_s
        parents = [sent[name] for name in request.parent_ids] or before
        begun_s = max((parent.arrival_s for parent in parents), default=(begun - 1) * delay_s)
        moved = replace(
            request,
            arrival_s=round(begun_s + delay_s, 6),
            parent_ids=tuple(parent.request_id for parent in parents),
            delay_s=delay_s if parents else None,
            tenant=user,
        )
        sent[request.request_id] = moved
        yield moved
