"""Followers: requests that wait for the answer to their parent, and the roots that wait for none.

A root and its descendants can be sent by a process of their own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.generators.parents import broken_links
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace

Followers = Mapping[str, Sequence[Request]]
"""The followers of each request, by its id, in the order of the trace."""


def roots_and_followers(trace: Trace, *, closed_loop: bool) -> tuple[list[Request], Followers]:
    """Return the roots by their arrival (ties keep the order of the trace), and the followers.

    In an open loop all requests are roots. A request whose parent is not in the trace, or that has
    no ``delay_s``, is always a root. Raises ``LoadTestError`` where a request waits for itself.
    """
    parents = {
        r.request_id: r.parent_id if closed_loop and r.delay_s is not None else None for r in trace
    }
    _refuse_cycles(parents)
    roots, followers = [], dict[str, list[Request]]()
    for request in trace:
        parent = parents[request.request_id]
        if parent is None or parent not in parents:
            roots.append(request)
        else:
            followers.setdefault(parent, []).append(request)
    return sorted(roots, key=lambda request: request.arrival_s), followers


def descendants(request: Request, followers: Followers) -> Iterator[Request]:
    """Yield the followers of a request, their followers, and so on."""
    rest = [request]
    while rest:
        children = followers.get(rest.pop().request_id, ())
        yield from children
        rest.extend(children)


def split_among(trace: Trace, workers: int, *, closed_loop: bool) -> list[Trace]:
    """Split the trace: root i and its descendants go to worker i mod ``workers``."""
    roots, followers = roots_and_followers(trace, closed_loop=closed_loop)
    return [_with_descendants(trace, roots[n::workers], followers) for n in range(workers)]


def begun_before(trace: Trace, end_s: float, *, closed_loop: bool) -> Trace:
    """Return the roots that arrive before ``end_s``, with all their descendants."""
    roots, followers = roots_and_followers(trace, closed_loop=closed_loop)
    begun = _with_descendants(trace, [r for r in roots if r.arrival_s < end_s], followers)
    left_out = len(trace) - len(begun)
    if not left_out:
        return trace
    return trace.replaced(begun.requests, f"{counted(left_out, 'request')} after {end_s:g} s cut")


def _with_descendants(trace: Trace, roots: Iterable[Request], followers: Followers) -> Trace:
    members = [each for root in roots for each in (root, *descendants(root, followers))]
    members.sort(key=lambda request: request.arrival_s)
    return Trace(tuple(members), trace.source, trace.clock_s, trace.notes)


def _refuse_cycles(parents: Mapping[str, str | None]) -> None:
    if not any(parents.values()):
        return
    for name, reason in broken_links(parents).items():
        if reason == "cyclic":
            circle = f"request {name!r} waits for itself, by way of {parents[name]!r}"
            raise LoadTestError(f"{circle}; give one of them no parent_id")
