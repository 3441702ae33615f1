"""A trace sent several times over: each round has request ids and prompts of its own.

The server would find prompts of an earlier round in its prefix cache. A repeated request shares its
prefixes with requests of its own round only, as in the first round.
"""

from dataclasses import replace

from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.generators.generate import MOST_REQUESTS
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace


class Repeats:
    """The requests of the later rounds of a trace."""

    def __init__(self, trace: Trace) -> None:
        self._blocks = 1 + max((max(_ids(request), default=-1) for request in trace), default=-1)

    def again(self, request: Request, number: int, later_s: float = 0.0) -> Request:
        """Return a request in round ``number`` (0 is the trace itself), ``later_s`` later."""
        if not number:
            return request
        return replace(
            request,
            request_id=f"{request.request_id}+{number}",
            arrival_s=request.arrival_s + later_s,
            prefix_block_ids=self._later(request.prefix_block_ids, number),
            answer_block_ids=self._later(request.answer_block_ids, number),
            parent_ids=tuple(f"{parent}+{number}" for parent in request.parent_ids),
            session_id=request.session_id and f"{request.session_id}+{number}",
        )

    def _later(self, ids: tuple[int, ...], number: int) -> tuple[int, ...]:
        return tuple(block_id + number * self._blocks for block_id in ids)


def _ids(request: Request) -> tuple[int, ...]:
    return request.prefix_block_ids + request.answer_block_ids


def looped(trace: Trace, times: int) -> Trace:
    """Repeat the trace; between two rounds lies the mean gap between two arrivals.

    Raises ``LoadTestError`` where there is no mean gap, since all requests arrive at once.
    """
    if times < 1:
        raise LoadTestError(f"--loop {times}: must be 1 or more")
    if times == 1:
        return trace
    if times * len(trace) > MOST_REQUESTS:
        raise LoadTestError(
            f"--loop {times}: a load test has at most {MOST_REQUESTS:,} requests, not "
            f"{times * len(trace):,}"
        )
    if not trace.rate_per_s:
        no_gap = "so there is no gap to leave before they arrive again"
        raise LoadTestError(
            f"--loop {times}: all requests of {trace.source} arrive at once, {no_gap}"
        )
    every_s = trace.span_s + 1 / trace.rate_per_s
    repeats = Repeats(trace)
    requests = [
        repeats.again(request, number, number * every_s)
        for number in range(times)
        for request in trace
    ]
    return trace.replaced(requests, f"{counted(times, 'time')} over, every {every_s:g} s")
