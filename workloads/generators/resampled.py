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

import numpy as np

from servetwin.workloads.generators.parents import rooted
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.block_length import block_length
from servetwin.workloads.trace import Trace

Conversation = list[Request]
"""A request and the later ones of its conversation, in the order of the trace."""


class Resampling:
    """Draws traces like ``trace``; it has at least two requests."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._conversations = _conversations(trace)
        starts_s = np.array([requests[0].arrival_s for requests in self._conversations])
        gaps_s = np.diff(starts_s)
        self._gaps_s = np.array([gaps_s.mean() if len(gaps_s) else 0.0, *gaps_s])
        tokens = [sum(r.total_tokens for r in requests) for requests in self._conversations]
        self.block = max(block_length(self._gaps_s), block_length(tokens))
        self._own_blocks = _own_blocks(self._conversations)

    def draw(self, rng: np.random.Generator) -> Trace:
        """Return a trace of as many conversations; copies of a request have ids of their own."""
        while True:
            drawn = self._drawn(rng)
            if drawn.span_s > 0 or not self._trace.span_s:
                return drawn

    def _drawn(self, rng: np.random.Generator) -> Trace:
        size = len(self._conversations)
        starts = rng.integers(size, size=-(-size // self.block))
        places = ((starts[:, None] + np.arange(self.block)) % size).ravel()[:size]
        starts_s = np.cumsum(self._gaps_s[places]).tolist()
        numbers, requests = defaultdict[int, int](int), list[Request]()
        own_ids = _OwnIds(self._own_blocks)
        for place, start_s in zip(places.tolist(), starts_s, strict=True):
            conversation, number = self._conversations[place], numbers[place]
            numbers[place] += 1
            later_s = start_s - conversation[0].arrival_s
            requests += _copied(conversation, later_s, number, own_ids)
        requests.sort(key=lambda request: request.arrival_s)
        return self._trace.replaced(requests, f"resampled in blocks of {self.block}")


class Copies:
    """The conversations of a trace, as often as they are wanted.

    The ids of a copy tell it from those of a trace that was drawn.
    """

    def __init__(self, trace: Trace) -> None:
        self._conversations = _conversations(trace)
        self._own_ids = _OwnIds(_own_blocks(self._conversations))

    def __len__(self) -> int:
        return len(self._conversations)

    def of(self, place: int, number: int) -> Conversation:
        """Return a copy of a conversation, 0 is itself; requests have ids of their own in each."""
        return list(_copied(self._conversations[place], 0.0, number, self._own_ids, "+"))


def _copied(
    conversation: Conversation, later_s: float, copy: int, own_ids: "_OwnIds", mark: str = "~"
) -> Iterator[Request]:
    """Yield the requests of a copy of a conversation, which begins ``later_s`` later."""
    for request in conversation:
        moved = replace(request, arrival_s=request.arrival_s + later_s)
        if not copy:
            yield moved
            continue
        parent_id = None if request.parent_id is None else f"{request.parent_id}{mark}{copy}"
        yield replace(
            moved,
            request_id=f"{request.request_id}{mark}{copy}",
            parent_id=parent_id,
            prefix_block_ids=own_ids.of(request.prefix_block_ids, copy),
            answer_block_ids=own_ids.of(request.answer_block_ids, copy),
        )


def _conversations(trace: Trace) -> Sequence[Conversation]:
    if all(request.parent_id is None for request in trace):
        return [[request] for request in trace]
    roots = rooted({request.request_id: request.parent_id for request in trace})
    found: dict[str, Conversation] = {}
    for request in trace:
        found.setdefault(roots[request.request_id], []).append(request)
    return list(found.values())


def _own_blocks(conversations: Sequence[Conversation]) -> Mapping[int, int]:
    """Return the conversation that alone has a block, by block; -1 where several have it."""
    owner: dict[int, int] = {}
    for place, requests in enumerate(conversations):
        for request in requests:
            for block in (*request.prefix_block_ids, *request.answer_block_ids):
                if owner.setdefault(block, place) != place:
                    owner[block] = -1
    return owner


class _OwnIds:
    """Gives blocks that a conversation shares with no other one new ids in each copy of it.

    Else a copy would find the whole prompt of the first one in the prefix cache.
    """

    def __init__(self, own_blocks: Mapping[int, int]) -> None:
        self._own = own_blocks
        above = count(1 + max((0, *own_blocks)))
        # Not below the others: sequences name blocks that are theirs alone by negative numbers.
        self._new_ids = defaultdict[tuple[int, int], int](above.__next__)

    def of(self, ids: tuple[int, ...], copy: int) -> tuple[int, ...]:
        """Return the ids in a copy."""
        return tuple(self._new_ids[one, copy] if self._own[one] >= 0 else one for one in ids)
