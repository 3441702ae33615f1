"""Requests that extend an earlier one: their links must lead to a root."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from workloads.request import Request


def broken_links(parents: Mapping[str, str | None]) -> dict[str, str]:
    """Why the link of a request is no good: ``unknown`` or ``cyclic``, by request id.

    ``parents`` gives the parent of every request, or None for a root. A request that merely
    descends from a broken one is not listed.
    """
    broken = {
        child: "unknown"
        for child, parent in parents.items()
        if parent is not None and parent not in parents
    }
    settled = set(broken)
    for start in parents:
        path: dict[str, None] = {}  # ordered, with a quick membership test
        node: str | None = start
        while node is not None and node not in settled and node not in path:
            path[node] = None
            node = parents[node]
        if node in path:
            steps = list(path)
            broken.update(dict.fromkeys(steps[steps.index(str(node)) :], "cyclic"))
        settled.update(path)
    return broken


def detach_orphans(requests: Sequence[Request]) -> list[Request]:
    """The requests, as roots where their parent is not among them."""
    present = {request.request_id for request in requests}
    return [
        request
        if request.parent_id is None or request.parent_id in present
        else replace(request, parent_id=None)
        for request in requests
    ]
