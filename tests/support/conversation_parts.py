"""Parts of conversations and of closed loops."""

from collections import defaultdict

from servetwin.workloads.generators.generate import WorkloadSpec, generate
from servetwin.workloads.generators.lengths import IndependentLengths, UniformTokens
from servetwin.workloads.generators.pauses import LognormalPause, PauseDistribution
from servetwin.workloads.generators.prefixes import PrefixGroups
from servetwin.workloads.generators.resampled import sent_by_users
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

LENGTHS = IndependentLengths(UniformTokens(10, 90), UniformTokens(1, 30))


TEN_S = LognormalPause(10.0)
GROUPS = PrefixGroups(2, 32)


def of_twenty_users(
    seed: int,
    lengths: IndependentLengths = LENGTHS,
    think: PauseDistribution = TEN_S,
    prefixes: PrefixGroups | None = GROUPS,
) -> Trace:
    """Fifteen requests of each of twenty users."""
    drawn = generate(WorkloadSpec(20 * 15, None, lengths, prefixes), seed)
    return sent_by_users(drawn, 20, think=think, seed=seed, rounds=15)


def sessions_of(trace: Trace) -> dict[str, list[Request]]:
    found = defaultdict(list)
    for request in trace:
        found[request.session_id or request.tenant or ""].append(request)
    return {name: sorted(one, key=lambda r: r.arrival_s) for name, one in found.items()}


def by_id(trace: Trace) -> list[Request]:
    return sorted(trace, key=lambda request: request.request_id)
