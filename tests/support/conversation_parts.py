"""Parts of conversations and of closed loops."""

from collections import defaultdict

from servetwin.workloads.generators.generate import ClosedLoopSpec
from servetwin.workloads.generators.lengths import IndependentLengths, UniformTokens
from servetwin.workloads.generators.pauses import LognormalPause
from servetwin.workloads.generators.prefixes import PrefixGroups
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

LENGTHS = IndependentLengths(UniformTokens(10, 90), UniformTokens(1, 30))


LOOP = ClosedLoopSpec(20, 15, LENGTHS, LognormalPause(10.0), PrefixGroups(2, 32))


def sessions_of(trace: Trace) -> dict[str, list[Request]]:
    found = defaultdict(list)
    for request in trace:
        found[request.session_id or request.tenant or ""].append(request)
    return {name: sorted(one, key=lambda r: r.arrival_s) for name, one in found.items()}


def by_id(trace: Trace) -> list[Request]:
    return sorted(trace, key=lambda request: request.request_id)
