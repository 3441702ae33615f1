"""Tasks of a trace: requests that wait for each other. Each can be sent by a process of its own."""

from itertools import count

from servetwin.workloads.graphs.links import tasks
from servetwin.workloads.graphs.task_graph import TaskGraph, waits
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace


def task_numbers(trace: Trace, *, closed_loop: bool) -> dict[str, int]:
    """Return the number of its task for each request id; the first request is of task 0.

    In an open loop every request is a task. Raises ``TraceError`` where a request waits for itself.
    """
    leaders = tasks(waits(trace, closed_loop))
    numbers = dict(zip(dict.fromkeys(leaders.values()), count(), strict=False))
    return {name: numbers[leader] for name, leader in leaders.items()}


def split_among(trace: Trace, workers: int, *, closed_loop: bool) -> list[Trace]:
    """Split the trace: task i goes to worker i mod ``workers``."""
    numbers = task_numbers(trace, closed_loop=closed_loop)
    shares: list[list[Request]] = [[] for _ in range(workers)]
    for request in trace:
        shares[numbers[request.request_id] % workers].append(request)
    return [Trace(tuple(share), trace.source, trace.clock_s, trace.notes) for share in shares]


def begun_before(trace: Trace, end_s: float, *, closed_loop: bool) -> Trace:
    """Return the roots that arrive before ``end_s``, and all that waits for none but these."""
    graph = TaskGraph(trace, lambda request: request, closed_loop=closed_loop)
    begun = [request for request in graph.roots if request.arrival_s < end_s]
    for request in begun:  # grows by the requests that wait no more
        begun += [follower for follower, _ in graph.ended(request.request_id, 0.0, answered=True)]
    left_out = len(trace) - len(begun)
    if not left_out:
        return trace
    begun.sort(key=lambda request: request.arrival_s)
    return trace.replaced(begun, f"{counted(left_out, 'request')} after {end_s:g} s cut")
