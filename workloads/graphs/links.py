"""The links of task graphs: which requests a request waits for, and which make one task."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from servetwin.workloads.errors import TraceError
from servetwin.workloads.request import Request
from servetwin.workloads.rows import RowError, Rows
from servetwin.workloads.trace import as_columns, column

# The parents of every request, by its id; none for a root.
Links = Mapping[str, Sequence[str]]


class BrokenLink(NamedTuple):
    """Why a link is invalid (``unknown`` or ``cyclic``), and the parent that it names."""

    reason: str
    parent: str


def links_of(requests: Iterable[Request]) -> dict[str, tuple[str, ...]]:
    """Return the parents of every request, whether they are in the trace or not."""
    return {request.request_id: request.parent_ids for request in requests}


def broken_links(links: Links) -> dict[str, BrokenLink]:
    """Return the first invalid link of each request that has one, by request id.

    A request that merely descends from a broken one is not listed.
    """
    broken = {
        child: BrokenLink("unknown", parent)
        for child, parents in links.items()
        for parent in reversed(parents)
        if parent not in links
    }
    linked = {child for child, parents in links.items() if parents}
    children: dict[str, list[str]] = {}
    for child in linked:
        for parent in links[child]:
            children.setdefault(parent, []).append(child)
    cyclic = _left(_left(linked, links, children), children, links)
    for child in cyclic - broken.keys():
        parent = next(parent for parent in links[child] if parent in cyclic)
        broken[child] = BrokenLink("cyclic", parent)
    return broken


def _left(names: set[str], before: Links, after: Links) -> set[str]:
    """Take away the names with none of ``names`` before them, again and again; return the rest."""
    rest = set(names)
    waits = {name: sum(each in rest for each in before.get(name, ())) for name in names}
    free = [name for name, count in waits.items() if not count]
    while free:
        name = free.pop()
        rest.discard(name)
        for each in after.get(name, ()):
            if each in rest:
                waits[each] -= 1
                if not waits[each]:
                    free.append(each)
    return rest


def refuse_cycles(links: Links) -> None:
    """Raise ``TraceError`` where a request waits for itself; all parents are among ``links``."""
    if _in_order(links):
        return
    broken = broken_links(links)
    name = next((each for each in links if each in broken), None)
    if name is None:
        return
    circle = [name]
    while (parent := broken[circle[-1]].parent) not in circle:
        circle.append(parent)
    shown = " -> ".join([*circle[circle.index(parent) :], parent])
    raise TraceError(f"request {parent!r} waits for itself ({shown}): cut one of these links")


def _in_order(links: Links) -> bool:
    """Return whether all parents stand before their children, as in most traces."""
    before: set[str] = set()
    for name, parents in links.items():
        if parents and not before.issuperset(parents):
            return False
        before.add(name)
    return True


def without_broken_links(
    rows: Rows, parsed: Sequence[tuple[int, Request]], field: str
) -> list[Request]:
    """Drop the requests with an unknown or cyclic parent: they are bad rows.

    ``parsed`` has the line of each request, ``field`` is what the format calls its parents. Those
    that descend from a bad row alone become roots.
    """
    broken = broken_links(links_of(request for _, request in parsed))
    for line, request in parsed:
        if link := broken.get(request.request_id):
            name = field if len(request.parent_ids) > 1 else field.removesuffix("s")
            rows.reject(line, RowError(name, link.reason, link.parent))
    kept = [request for _, request in parsed if request.request_id not in broken]
    return list(detach_orphans(kept))


def tasks(links: Links) -> dict[str, str]:
    """Return a request of its task for every request: the same one for all that links connect.

    It is the root where a task is a tree.
    """
    leaders: dict[str, str] = {}

    def leader(name: str) -> str:
        while (above := leaders.get(name)) is not None:
            if (top := leaders.get(above)) is None:
                return above
            leaders[name] = name = top  # halves the path
        return name

    for child, parents in links.items():
        for place, parent in enumerate(parents):
            own, other = leader(child), leader(parent)
            if own != other and parent in links:
                below, above = (other, own) if place else (own, other)
                leaders[below] = above
    return {name: leader(name) for name in links}


def detach_orphans(requests: Sequence[Request]) -> Sequence[Request]:
    """Leave out the parents that are not among the requests."""
    if not any(column(requests, "parent_ids")):
        return requests
    present = {request.request_id for request in requests}
    return [
        request
        if not request.parent_ids or present.issuperset(request.parent_ids)
        else replace(request, parent_ids=tuple(p for p in request.parent_ids if p in present))
        for request in requests
    ]


def without_failed(requests: Sequence[Request]) -> Sequence[Request]:
    """Return the answered requests; those after a failed one wait for its parents instead.

    Where it was the only parent, the delay becomes the sum of both.
    """
    if not any(column(requests, "parent_ids")):
        return as_columns(requests)[np.flatnonzero(column(requests, "status") == "ok")]
    failed = {request.request_id: request for request in requests if request.status == "failed"}
    answered = [_past(request, failed) for request in requests if request.status == "ok"]
    return detach_orphans(answered)


def _past(request: Request, failed: Mapping[str, Request]) -> Request:
    while name := next((parent for parent in request.parent_ids if parent in failed), None):
        others = [parent for parent in request.parent_ids if parent != name]
        delay_s = request.delay_s if others else _sum(request.delay_s, failed[name].delay_s)
        parents = tuple(dict.fromkeys([*failed[name].parent_ids, *others]))
        request = replace(request, parent_ids=parents, delay_s=delay_s)
    return request


def _sum(left_s: float | None, right_s: float | None) -> float | None:
    return None if left_s is None or right_s is None else left_s + right_s
