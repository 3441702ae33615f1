"""Make a workload small that two schedulers decide differently."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from tests.conformance.workload import BLOCK_TOKENS, Asked, Workload

Differs = Callable[[Workload], bool]
"""Whether two schedulers still decide a workload differently."""

_PLAIN: tuple[dict[str, Any], ...] = (
    {"groups": "full"}, {"decide_ahead": False}, {"prefix_cache": False}, {"priorities": False},
    {"watermark": 0.0}, {"long_prefill_tokens": 0, "long_prefill_adaptive": False},
    {"full_prompt_gate": True}, {"chunk_prompts": True}, {"repeats": False},
    {"long_prefill_adaptive": False}, {"queued_tokens": None}, {"spare_seqs": 0},
)  # fmt: skip
"""The plain value of each setting."""
_PLAIN_REQUEST: tuple[dict[str, Any], ...] = (
    {"parent": None}, {"abort_after": None}, {"n": 1}, {"stops": False}, {"priority": 0},
    {"arrival_step": 0},
)  # fmt: skip


def shrink(workload: Workload, differs: Differs) -> Workload:
    """Return the smallest workload found that still ``differs``.

    Requests go, then settings become plain, then requests become plain and short, again and again
    until nothing more can go.
    """
    size = None
    while size != (size := len(workload.to_json())):
        workload = _with_fewer_requests(workload, differs)
        for values in _PLAIN:
            workload = _smaller(workload, replace(workload, **values), differs)
        for place in range(len(workload.requests)):
            for plainer in _plainer(workload.requests[place]):
                requests = [*workload.requests]
                requests[place] = plainer(requests[place])
                workload = _smaller(workload, replace(workload, requests=requests), differs)
    return workload


def _with_fewer_requests(workload: Workload, differs: Differs) -> Workload:
    """Take out requests, half of them first, then one by one."""
    run = len(workload.requests) // 2
    while run:
        place = 0
        while place < len(workload.requests):
            requests = workload.requests[:place] + workload.requests[place + run :]
            fewer = replace(workload, requests=_without_parents(requests))
            smaller = _smaller(workload, fewer, differs)
            place += run if smaller is workload else 0
            workload = smaller
        run //= 2
    return workload


def _without_parents(requests: list[Asked]) -> list[Asked]:
    """Let the followers of requests that are gone begin by themselves."""
    names = {asked.name for asked in requests}
    return [one if one.parent in names else replace(one, parent=None) for one in requests]


def _plainer(asked: Asked) -> Iterator[Callable[[Asked], Asked]]:
    """Yield ways to make a request plainer or shorter."""
    for values in _PLAIN_REQUEST:
        yield partial(replace, **values)
    for key in ("prompt", "answer"):
        cut = len(getattr(asked, key)) // 2
        while cut:
            yield partial(_cut, key, cut)
            cut //= 2


def _cut(key: str, tokens: int, asked: Asked) -> Asked:
    """Return a request whose prompt, or answer, is so many tokens shorter, if it is longer."""
    old: list[int] = getattr(asked, key)
    changes: dict[str, Any] = {key: old[:-tokens] or old}
    return replace(asked, **changes)


def _smaller(workload: Workload, other: Workload, differs: Differs) -> Workload:
    """Return ``other`` if it is another workload that is possible and ``differs``."""
    longest = max((len(one.prompt) + len(one.answer) for one in other.requests), default=0)
    fits = longest and longest <= other.blocks * BLOCK_TOKENS
    return other if other != workload and fits and differs(other) else workload
