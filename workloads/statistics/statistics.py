"""What a trace is like: arrivals, lengths, what prefix caches would save, and sessions.

Percentiles interpolate linearly; standard deviations are the population's; what is undefined (a
ratio of nothing) is None.

How the blocks of a trace's prompts come back: caches of any size, coarser blocks, hot blocks.

All of it relies on chained ids: requests with an id in common have all ids before it in common.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from servetwin.workloads.block_ids import Prefixes
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
# The blocks of each prompt as numbers from 0, and how often each number occurs.
Numbered = tuple[list[IntArray], IntArray]


def lru_hits(
    requests: Sequence[Request], shares: Sequence[float], numbered: Numbered | None = None
) -> list[tuple[float, float]]:
    """Return (block, token) hit rates of an LRU cache per capacity, a share of the distinct blocks.

    A request looks up its leading run of cached blocks, then all its blocks become the most recent,
    its head more so than its tail. ``numbered`` are the blocks of ``requests``, where known.
    """
    prompts, counts = numbered or _numbered(requests)
    blocks, tokens = len(counts), sum(request.prompt_tokens for request in requests)
    caches = [_RecentBlocks(int(share * blocks)) for share in shares]
    last_user = np.full(blocks, -1)
    for number, (request, ids) in enumerate(zip(requests, prompts, strict=True)):
        users = last_user[ids]
        ends = np.flatnonzero(np.diff(users, append=-2)) + 1
        runs = [(int(users[end - 1]), int(end)) for end in ends if users[end - 1] >= 0]
        for cache in caches:
            hits = cache.use(runs, len(ids))
            cache.hit_blocks += hits
            cache.hit_tokens += min(hits * (request.block_tokens or 0), request.prompt_tokens)
        last_user[ids] = number
    used = int(counts.sum())
    return [(cache.hit_blocks / used, cache.hit_tokens / tokens) for cache in caches]


class _RecentBlocks:
    """An LRU cache, held as the blocks of each prompt that no later one has: few per prompt.

    They are one piece of it, and the deeper ones are less recent, so they leave from its end.
    """

    def __init__(self, capacity: int) -> None:
        self.hit_blocks = self.hit_tokens = 0
        self._free, self._oldest = capacity, 0
        self._begins: list[int] = []
        self._ends: list[int] = []

    def use(self, runs: Iterable[tuple[int, int]], blocks: int) -> int:
        """Look up a prompt's leading cached blocks, then make all its blocks the most recent.

        ``runs`` are its known blocks: the prompt that had them last, and their end in both.
        """
        hits, is_whole = 0, True
        for prompt, end in runs:
            cached = max(0, min(end, self._ends[prompt]) - self._begins[prompt])
            hits += cached if is_whole else 0
            is_whole = is_whole and self._ends[prompt] >= end
            self._begins[prompt] = end
            self._free += cached
        self._begins.append(0)
        self._ends.append(blocks)
        self._free -= blocks
        while self._free < 0:
            held = max(0, self._ends[self._oldest] - self._begins[self._oldest])
            dropped = min(held, -self._free)
            self._ends[self._oldest] -= dropped
            self._free += dropped
            self._oldest += dropped == held
        return hits


def _numbered(requests: Iterable[Request]) -> Numbered:
    """Return the ids of each prompt as numbers from 0, and how often each number occurs."""
    numbers: dict[int, int] = {}
    prompts = [
        np.array(
            [numbers.setdefault(each, len(numbers)) for each in one.prefix_block_ids], np.int64
        )
        for one in requests
    ]
    return prompts, np.bincount(np.concatenate(prompts))


def endless_hits(requests: Iterable[Request], *, cached_answers: bool = True) -> list[int]:
    """Return how many tokens of each prompt a cache without limit has from those before it.

    With ``cached_answers`` it has the answers that a later prompt repeats, too.
    """
    prefixes, hits = Prefixes(), list[int]()
    for request in requests:
        ids = request.prefix_block_ids
        whole = ids + request.answer_block_ids if cached_answers else ids
        known, _, key = prefixes.find(whole)
        if known < len(whole):
            prefixes.prompts[key] = whole
        hits.append(min(min(known, len(ids)) * (request.block_tokens or 0), request.prompt_tokens))
    return hits


def reblocked(requests: Sequence[Request], factor: int) -> list[Request]:
    """Merge each ``factor`` blocks of the requests into one, which has the id of the last.

    What is left at the end of a prompt stays a block, filled in part.
    """
    return [_reblocked(request, factor) for request in requests]


def reuse_shares(
    requests: Sequence[Request], numbered: Numbered | None = None
) -> tuple[float, float | None]:
    """Return the share of distinct blocks that occur twice or more, and the share of reuse by the
    top 1 %. ``numbered`` are the blocks of ``requests``, where known.
    """
    _, counts = numbered or _numbered(requests)
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


LOCAL_WINDOW_S = 300.0
LOCAL_MIN_GAPS = 3
DISPERSION_WINDOWS_S = (1, 10, 60, 300)
COARSER = (2, 4, 8)
LRU_SHARES = (0.01, 0.05, 0.10, 0.25, 0.50)


class SessionSamples(NamedTuple):
    """One value per session (``turns``), or per turn that follows another (the others)."""

    turns: FloatArray
    gaps_s: FloatArray
    fresh_tokens: FloatArray


def statistics(trace: Trace) -> dict[str, Any]:
    """Return the figures of a trace, ready for JSON.

    ``ties`` is the share of gaps that are 0; ``prefix`` is None where no request has ids,
    ``sessions`` where none has a session.
    """
    names = ("arrival_s", "prompt_tokens", "output_tokens")
    arrivals_s, prompts, outputs = (trace.column(name).astype(float) for name in names)
    gaps_s = np.diff(arrivals_s)
    return {
        "rows": len(trace),
        "span_s": trace.span_s,
        "rate_per_s": trace.rate_per_s,
        "cv_iat": coefficient_of_variation(gaps_s),
        "local_cv": local_cv(arrivals_s),
        "ties": float((gaps_s == 0).mean()) if len(gaps_s) else None,
        **{f"idc_{w}s": index_of_dispersion(arrivals_s, w) for w in DISPERSION_WINDOWS_S},
        "prompt_tokens": _summary(prompts),
        "output_tokens": _summary(outputs),
        "spearman_rho": spearman_rho(prompts, outputs),
        "prefix": _prefix_figures(trace.requests),
        "sessions": _session_figures(trace.requests),
    }


def coefficient_of_variation(values: FloatArray) -> float | None:
    """Return standard deviation over mean."""
    mean = values.mean() if len(values) else 0.0
    return float(values.std() / mean) if mean else None


def local_cv(arrivals_s: FloatArray) -> float | None:
    """Return median over 300 s windows of the CV of the gaps within each: blind to slow rate drift.

    Windows start at the first arrival; the last may be cut short; 3 gaps at least.
    """
    if len(arrivals_s) == 0:
        return None
    windows = (arrivals_s - arrivals_s[0]) // LOCAL_WINDOW_S
    starts = np.flatnonzero(np.diff(windows)) + 1
    gaps = [np.diff(part) for part in np.split(arrivals_s, starts)]
    cvs = [coefficient_of_variation(part) for part in gaps if len(part) >= LOCAL_MIN_GAPS]
    defined = [cv for cv in cvs if cv is not None]
    return float(np.median(defined)) if defined else None


def index_of_dispersion(arrivals_s: FloatArray, window_s: float) -> float | None:
    """Return variance over mean of the arrivals per window, over the whole windows of the trace.

    1 for a Poisson process at every window. None where fewer than two windows fit.
    """
    if len(arrivals_s) == 0:
        return None
    since_s = arrivals_s - arrivals_s[0]
    windows = int(since_s[-1] // window_s)
    if windows < 2:
        return None
    index = since_s // window_s
    _, counts = np.unique(index[index < windows], return_counts=True)  # empty windows add 0
    mean = counts.sum() / windows
    return float(((counts**2).sum() / windows - mean**2) / mean)


def spearman_rho(left: FloatArray, right: FloatArray) -> float | None:
    """Return correlation of the ranks, ties sharing their mean rank."""
    if len(left) < 2 or not (np.ptp(left) and np.ptp(right)):
        return None
    return float(np.corrcoef(_ranks(left), _ranks(right))[0, 1])


def session_samples(requests: Iterable[Request]) -> SessionSamples:
    """Return the turns of each ``session_id``, and gap and fresh tokens of each request with a
    parent.

    A gap is the time between the arrivals of both. Fresh tokens are what the prompt adds to the
    parent's prompt and output; 0 where it is shorter, as after a compaction.
    """
    by_id: dict[str, Request] = {}
    turns: Counter[str] = Counter()
    gaps_s, fresh_tokens = [], []
    for request in requests:
        by_id[request.request_id] = request
        if request.session_id is not None:
            turns[request.session_id] += 1
        if (parent := by_id.get((*request.parent_ids, "")[0])) is not None:
            gaps_s.append(request.arrival_s - parent.arrival_s)
            fresh_tokens.append(max(0, request.prompt_tokens - parent.total_tokens))
    return SessionSamples(
        np.array(list(turns.values()), np.float64),
        np.array(gaps_s, np.float64),
        np.array(fresh_tokens, np.float64),
    )


def prefix_statistics(requests: Sequence[Request]) -> dict[str, Any] | None:
    """Return the hits of an unlimited prefix cache: look up the leading known ids, then add all.

    Per block; per token, the part of a last block counting as its tokens; and per token with full
    blocks only, which is what a block cache can serve.
    """
    cached: set[int] = set()
    blocks = hit_blocks = hit_tokens = full_hit_tokens = 0
    for request in requests:
        ids, block_tokens = request.prefix_block_ids, request.block_tokens or 0
        hits = len(list(takewhile(cached.__contains__, ids)))
        cached.update(ids)
        blocks += len(ids)
        hit_blocks += hits
        hit_tokens += min(hits * block_tokens, request.prompt_tokens)
        if block_tokens:
            full_hit_tokens += min(hits, request.prompt_tokens // block_tokens) * block_tokens
    if not blocks:
        return None
    tokens = sum(request.prompt_tokens for request in requests)
    return {
        "blocks": blocks,
        "unique_blocks": len(cached),
        "hit_per_block": hit_blocks / blocks,
        "hit_per_token": hit_tokens / tokens,
        "full_block_hit_per_token": full_hit_tokens / tokens,
    }


def _prefix_figures(requests: Sequence[Request]) -> dict[str, Any] | None:
    """Return the hits of ``prefix_statistics``, with coarser blocks and smaller caches."""
    ideal = prefix_statistics(requests)
    if ideal is None:
        return None
    numbered = _numbered(requests)
    reused, top_reuse = reuse_shares(requests, numbered)
    caches = zip(LRU_SHARES, lru_hits(requests, LRU_SHARES, numbered), strict=True)
    return {
        **ideal,
        "coarser": {f"{factor}x": _ideal_hits(reblocked(requests, factor)) for factor in COARSER},
        "lru": {
            f"{share:.0%}": {"hit_per_block": by_block, "hit_per_token": by_token}
            for share, (by_block, by_token) in caches
        },
        "reused_blocks": reused,
        "top_1%_reuse": top_reuse,
    }


def _ideal_hits(requests: Sequence[Request]) -> dict[str, float] | None:
    figures = prefix_statistics(requests)
    return figures and {name: figures[name] for name in ("hit_per_block", "hit_per_token")}


def _session_figures(requests: Sequence[Request]) -> dict[str, Any] | None:
    samples = session_samples(requests)
    if not len(samples.turns):
        return None
    return {
        "count": len(samples.turns),
        "turns": _summary(samples.turns),
        "gap_s": _summary(samples.gaps_s),
        "fresh_tokens": _summary(samples.fresh_tokens),
    }


def _summary(values: FloatArray) -> dict[str, float | None]:
    names = ("mean", "p50", "p90", "p99", "max")
    if len(values) == 0:
        return dict.fromkeys(names)
    figures = (values.mean(), *np.percentile(values, (50, 90, 99)), values.max())
    return dict(zip(names, map(float, figures), strict=True))


def _ranks(values: FloatArray) -> FloatArray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: FloatArray = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks
