"""How the blocks of a trace's prompts come back: caches of any size, coarser blocks, hot blocks.

All of it relies on chained ids: requests with an id in common have all ids before it in common.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, takewhile

import numpy as np

from servetwin.workloads.request import Request


def lru_hits(requests: Sequence[Request], shares: Sequence[float]) -> list[tuple[float, float]]:
    """Return (block, token) hit rates of an LRU cache per capacity, a share of the distinct blocks.

    A request looks up its leading run of cached blocks, then all its blocks become the most recent,
    its head more so than its tail.
    """
    distinct = len(set(chain.from_iterable(request.prefix_block_ids for request in requests)))
    blocks = sum(len(request.prefix_block_ids) for request in requests)
    tokens = sum(request.prompt_tokens for request in requests)
    hits = [_lru_hits(requests, int(share * distinct)) for share in shares]
    return [(hit_blocks / blocks, hit_tokens / tokens) for hit_blocks, hit_tokens in hits]


def _lru_hits(requests: Iterable[Request], capacity: int) -> tuple[int, int]:
    cached: OrderedDict[int, None] = OrderedDict()
    hit_blocks = hit_tokens = 0
    for request in requests:
        hits = len(list(takewhile(cached.__contains__, request.prefix_block_ids)))
        hit_blocks += hits
        hit_tokens += min(hits * (request.block_tokens or 0), request.prompt_tokens)
        for block in reversed(request.prefix_block_ids):
            cached[block] = None
            cached.move_to_end(block)
        while len(cached) > capacity:
            cached.popitem(last=False)
    return hit_blocks, hit_tokens


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
