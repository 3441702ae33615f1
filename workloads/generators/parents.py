"""Requests that extend an earlier one: their links must lead to a root."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace

from servetwin.workloads.request import Request
from servetwin.workloads.rows import RowError, Rows


def broken_links(parents: Mapping[str, str | None]) -> dict[str, str]:
    """Return why the parent of a request is invalid (``unknown`` or ``cyclic``), by request id.

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


def without_broken_links(
    rows: Rows, parsed: Sequence[tuple[int, Request]], field: str
) -> list[Request]:
    """Drop the requests with an unknown or cyclic parent: they are bad rows.

    ``parsed`` has the line of each request, ``field`` is what the format calls its parent. Those
    that descend from a bad row become roots.
    """
    broken = broken_links({request.request_id: request.parent_id for _, request in parsed})
    for line, request in parsed:
        if reason := broken.get(request.request_id):
            rows.reject(line, RowError(field, reason, request.parent_id))
    return detach_orphans([request for _, request in parsed if request.request_id not in broken])


def rooted(parents: Mapping[str, str | None]) -> dict[str, str]:
    """Return the root of every request; the links must not be broken."""
    roots: dict[str, str] = {}
    for start in parents:
        path, node = [start], start
        while node not in roots and (parent := parents[node]) is not None:
            path.append(node := parent)
        roots.update(dict.fromkeys(path, roots.get(node, node)))
    return roots


def detach_orphans(requests: Sequence[Request]) -> list[Request]:
    """Make a request a root where its parent is not among the requests."""
    present = {request.request_id for request in requests}
    return [
        request
        if request.parent_id is None or request.parent_id in present
        else replace(request, parent_id=None)
        for request in requests
    ]


def without_failed(requests: Sequence[Request]) -> list[Request]:
    """Return the answered requests; a child of a failed request gets the parent of that request.

    Its delay becomes the sum of both.
    """
    failed = {request.request_id: request for request in requests if request.status == "failed"}
    answered = [_past(request, failed) for request in requests if request.status == "ok"]
    return detach_orphans(answered)


def _past(request: Request, failed: Mapping[str, Request]) -> Request:
    while request.parent_id is not None and (parent := failed.get(request.parent_id)):
        delay_s = _sum(request.delay_s, parent.delay_s)
        request = replace(request, parent_id=parent.parent_id, delay_s=delay_s)
    return request


def _sum(left_s: float | None, right_s: float | None) -> float | None:
    return None if left_s is None or right_s is None else left_s + right_s


ROOT = -1
"""Comes before the first block of a prompt."""

_PRIVATE = -1
"""No native id, so no prompt ever asks for the same block."""


class Chaining:
    """Names blocks by their predecessor and their own native id, in order of first appearance.

    Native ids that name the content of a block alone recur under different prefixes; chained ids
    do not, so equal ids mean equal prefixes. Ids that are chained already are only renamed.
    """

    def __init__(self) -> None:
        self._ids: dict[tuple[int, int], int] = {}
        self._last: tuple[int, Sequence[int], tuple[int, ...]] = (ROOT, (), ())

    def chained(self, native_ids: Sequence[int], after: int = ROOT) -> tuple[int, ...]:
        """Return the chained ids of blocks that follow the block ``after``."""
        last_after, last_native, last_chained = self._last
        known = _shared_length(native_ids, last_native) if after == last_after else 0
        chained = list(last_chained[:known])  # most prompts extend the one before
        block = chained[-1] if chained else after
        for native_id in native_ids[known:]:
            block = self._ids.setdefault((block, native_id), len(self._ids))
            chained.append(block)
        self._last = after, native_ids, tuple(chained)
        return self._last[2]

    def private(self, blocks: int, after: int = ROOT) -> tuple[int, ...]:
        """Return ids for ``blocks`` blocks that no other prompt shares."""
        return self.chained([_PRIVATE - len(self._ids)] * blocks, after)


def _shared_length(left: Sequence[int], right: Sequence[int]) -> int:
    """Count the equal leading items by comparing slices, which is faster than item by item."""
    lengths = range(1, min(len(left), len(right)) + 1)
    return bisect_left(lengths, True, key=lambda length: left[:length] != right[:length])
