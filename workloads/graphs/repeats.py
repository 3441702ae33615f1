"""Requests of a trace sent again: each round has request ids and prompts of its own.

The server would find prompts of an earlier round in its prefix cache. A repeated request shares its
prefixes with requests of its own round only, as in the first round.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from servetwin.workloads.block_ids import BlockIds, Ids, highest
from servetwin.workloads.request import Request


class Repeats:
    """The requests of the later rounds of a trace."""

    def __init__(self, requests: Iterable[Request]) -> None:
        ids = [(each.prefix_block_ids, each.answer_block_ids) for each in requests]
        self._blocks = 1 + highest([*chain.from_iterable(ids)])

    def again(self, request: Request, number: int, later_s: float = 0.0) -> Request:
        """Return a request in round ``number`` (0 is the trace itself), ``later_s`` later."""
        if not number:
            return request
        return replace(
            request,
            request_id=self.name(request.request_id, number),
            arrival_s=request.arrival_s + later_s,
            prefix_block_ids=self.later(request.prefix_block_ids, number),
            answer_block_ids=self.later(request.answer_block_ids, number),
            parent_ids=tuple(self.name(parent, number) for parent in request.parent_ids),
            session_id=request.session_id and self.name(request.session_id, number),
        )

    def name(self, name: str, number: int) -> str:
        """Return a name in round ``number``."""
        return f"{name}+{number}" if number else name

    def later(self, ids: Ids, number: int) -> Ids:
        """Return the ids of the same blocks in round ``number``."""
        by = number * self._blocks
        return ids.shifted(by) if isinstance(ids, BlockIds) else tuple(each + by for each in ids)
