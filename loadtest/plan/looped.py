"""A trace sent several times over, one round after the other."""

from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.generators.generate import MOST_REQUESTS
from servetwin.workloads.graphs.repeats import Repeats
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace


def looped(trace: Trace, times: int) -> Trace:
    """Repeat the trace; between two rounds lies the mean gap between two arrivals.

    Raises ``LoadTestError`` where there is no mean gap, since all requests arrive at once.
    """
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
