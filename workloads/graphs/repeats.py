"""Requests of a trace sent again: each round has request ids and prompts of its own.

The server would find prompts of an earlier round in its prefix cache. A repeated request shares its
prefixes with requests of its own round only, as in the first round.
"""

from collections.abc import Iterable
from dataclasses import replace

from servetwin.workloads.request import Request


class Repeats:
    """The requests of the later rounds of a trace."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._blocks = 1 + max((max(_ids(each), default=-1) for each in requests), default=-1)

    def again(self, request: Request, number: int, later_s: float = 0.0) -> Request:
        """Return a request in round ``number`` (0 is the trace itself), ``later_s`` later."""
        if not number:
            return request
        return replace(
            request,
            request_id=self.name(request.request_id, number),
            arrival_s=request.arrival_s + later_s,
            prefix_block_ids=self._later(request.prefix_block_ids, number),
            answer_block_ids=self._later(request.answer_block_ids, number),
            parent_ids=tuple(self.name(parent, number) for parent in request.parent_ids),
            session_id=request.session_id and self.name(request.session_id, number),
        )

    def name(self, name: str, number: int) -> str:
        """Return a name in round ``number``."""
        return f"{name}+{number}" if number else name

    def _later(self, ids: tuple[int, ...], number: int) -> tuple[int, ...]:
        return tuple(block_id + number * self._blocks for block_id in ids)


def _ids(request: Request) -> tuple[int, ...]:
    return request.prefix_block_ids + request.answer_block_ids
