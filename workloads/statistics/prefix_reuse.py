"""How the blocks of a trace's prompts come back: caches of any size, coarser blocks, hot blocks.

All of it relies on chained ids: requests with an id in common have all ids before it in common.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from servetwin.workloads.request import Request

IntArray = NDArray[np.int64]


def lru_hits(requests: Sequence[Request], shares: Sequence[float]) -> list[tuple[float, float]]:
    """Return (block, token) hit rates of an LRU cache per capacity, a share of the distinct blocks.

    A request looks up its leading run of cached blocks, then all its blocks become the most recent,
    its head more so than its tail. The cache always holds the most recent blocks, so one pass over
    the stack distances serves all capacities (Mattson et al., IBM Systems Journal 1970).
    """
    chains = _dense_ids(requests)
    distinct = max((int(chain.max()) + 1 for chain in chains if len(chain)), default=0)
    capacities = np.array([int(share * distinct) for share in shares])
    hit_blocks, hit_tokens = np.zeros(len(shares), np.int64), np.zeros(len(shares), np.int64)
    stack = _RecencyStack(distinct, len(requests))
    for request, chain in zip(requests, chains, strict=True):
        hits = np.zeros(len(shares), np.int64)
        for above, run in stack.touch(chain):
            hits += np.clip(capacities - above, 0, run)
        hit_blocks += hits
        hit_tokens += np.minimum(hits * (request.block_tokens or 0), request.prompt_tokens)
    blocks, tokens = sum(map(len, chains)), sum(request.prompt_tokens for request in requests)
    return list(zip((hit_blocks / blocks).tolist(), (hit_tokens / tokens).tolist(), strict=True))


def reblocked(requests: Sequence[Request], factor: int) -> list[Request]:
    """Merge each ``factor`` blocks of the requests into one, which has the id of the last.

    What is left at the end of a prompt stays a block, filled in part.
    """
    return [_reblocked(request, factor) for request in requests]


def reuse_shares(requests: Sequence[Request]) -> tuple[float, float | None]:
    """Return the share of distinct blocks that occur twice or more, and the share of reuse by the
    top 1 %.
    """
    ids = [np.array(r.prefix_block_ids) for r in requests if r.prefix_block_ids]
    _, counts = np.unique(np.concatenate(ids), return_counts=True)
    reuses = np.sort(counts - 1)[::-1]
    top = reuses[: max(1, len(reuses) // 100)]
    total = int(reuses.sum())
    return float((reuses > 0).mean()), float(top.sum() / total) if total else None


class _RecencyStack:
    """All blocks from the most to the least recent, as runs of blocks that one request touched."""

    def __init__(self, blocks: int, requests: int) -> None:
        self._last_touch = np.full(blocks, -1)
        self._sums = [0] * (requests + 1)  # Fenwick tree: blocks by the request of their last touch
        self._now = 0
        self._depth = 0

    def touch(self, chain: IntArray) -> list[tuple[int, int]]:
        """Move a request's blocks to the top; return where they were: (blocks above, length) per
        run.

        What an earlier request touched and no later one is the tail of its chain, so the blocks of
        a run lay one below the other.
        """
        runs = list(self._runs(chain))
        known = [(self._depth - self._count_until(touch), run) for touch, run in runs]
        for touch, run in runs:
            self._add(touch, -run)
        self._add(self._now, len(chain))
        self._last_touch[chain] = self._now
        self._now += 1
        self._depth += len(chain) - sum(run for _, run in runs)
        return known

    def _runs(self, chain: IntArray) -> Iterator[tuple[int, int]]:
        """Return (last touch, length) of the runs of known blocks at the head of a chain."""
        touches = self._last_touch[chain]
        starts = np.flatnonzero(np.diff(touches, prepend=-2))
        lengths = np.diff(starts, append=len(touches))
        for touch, run in zip(touches[starts].tolist(), lengths.tolist(), strict=True):
            if touch < 0:
                return
            yield touch, run

    def _add(self, request: int, blocks: int) -> None:
        index = request + 1
        while index < len(self._sums):
            self._sums[index] += blocks
            index += index & -index

    def _count_until(self, request: int) -> int:
        """Count the blocks with a last touch by this request or an earlier one."""
        index, total = request + 1, 0
        while index:
            total += self._sums[index]
            index -= index & -index
        return total


def _dense_ids(requests: Sequence[Request]) -> list[IntArray]:
    """Return the ids of each request, renumbered 0, 1, ... in the order of their first use."""
    numbers: dict[int, int] = {}
    return [
        np.array([numbers.setdefault(i, len(numbers)) for i in r.prefix_block_ids], np.int64)
        for r in requests
    ]


def _reblocked(request: Request, factor: int) -> Request:
    ids, block_tokens = request.prefix_block_ids, request.block_tokens
    if block_tokens is None:
        return request
    coarse = ids[factor - 1 :: factor]
    if len(ids) % factor:
        coarse = (*coarse, ids[-1])
    return replace(
        request, prefix_block_ids=coarse, answer_block_ids=(), block_tokens=factor * block_tokens
    )


def why_no_hits(requests: Iterable[Request]) -> str | None:
    """Return why a prefix cache cannot hit on these requests; None where it can."""
    cached: set[int] = set()
    for request in requests:
        if not cached.isdisjoint(request.prefix_block_ids):
            return None
        cached.update(request.prefix_block_ids, request.answer_block_ids)
    return "no two prompts begin alike" if cached else "no request has prefix ids"
