"""How much of the prompts the server's prefix cache knew, beside what the load itself shares.

A server finds a prompt token in its cache because an earlier request of the load had it, because
the server adds it to every prompt (a chat template), or because an earlier load had it. The last
makes TTFT shorter than new prompts have it, so a run where it happened is marked.
"""

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import pandas as pd

from servetwin.workloads.readers.prompt_fields import texts_of
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

_FILE = resources.files("servetwin.loadtest").joinpath("report/load_notes.json")
_WARNING: str = json.loads(_FILE.read_text("utf-8"))["cached"]
TOLERANCE = 0.01
"""Share of the prompt tokens that may be cached for other reasons: a first token, a retry."""

PIECE = 64
"""Characters of a real prompt that are compared at once."""


class CacheCounts(NamedTuple):
    """Prompt tokens that the server looked up in its prefix cache, and those it found there."""

    looked_up: int
    found: int


def prompt_cache(
    requests: pd.DataFrame, trace: Trace, metrics: CacheCounts | None = None
) -> dict[str, Any]:
    """Return the shares of the prompt tokens: cached, shared by the load itself, added.

    ``said_by`` says where ``cached_share`` comes from: the usage of the answers, or the ``metrics``
    of the server, which count all of its clients; both are None where the server does not say.
    ``own_share`` is what a cache without limit finds of the load in an empty server, and
    ``added_share`` what the server adds to every prompt.
    """
    wanted = {request.request_id: request for request in trace}
    sent = requests[requests["sent_s"].notna()].sort_values("scheduled_s")["request_id"]
    finished = requests[requests["status"] == "finished"]
    cached_share, said_by = _cached_share(finished, metrics)
    return {
        "cached_share": cached_share,
        "said_by": said_by,
        "own_share": shared_share([wanted[name] for name in sent if name in wanted]),
        "added_share": _added_share(finished, wanted),
    }


def shared_share(requests: list[Request]) -> float:
    """Return the share of the prompt tokens that a request before has, as a cache finds them."""
    known, shared_tokens = set[int](), 0
    for request in requests:
        ids, block_tokens = _blocks(request)
        blocks = next((n for n, block in enumerate(ids) if block not in known), len(ids))
        shared_tokens += min(round(blocks * block_tokens), request.prompt_tokens)
        known.update(ids[blocks:])
    prompt_tokens = sum(request.prompt_tokens for request in requests)
    return shared_tokens / prompt_tokens if prompt_tokens else 0.0


def _blocks(request: Request) -> tuple[Sequence[int], float]:
    """Return the chained ids of a prompt's blocks and their tokens; a real one's by its text."""
    if request.prompt is None:
        return request.prefix_block_ids, request.block_tokens or 0
    text = "\n".join(texts_of(request.prompt))
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    ids = list(accumulate(pieces, lambda before, piece: hash((before, piece)), initial=0))[1:]
    return ids, request.prompt_tokens * PIECE / max(1, len(text))


def prompt_cache_line(shares: Mapping[str, Any], salt: str) -> str:
    """Return a line on the prompts of a load test: their salt, what was cached, what is shared."""
    if shares["cached_share"] is None:
        cached = "the server does not say what its prefix cache knew"
    else:
        source = {"usage": "usage", "metrics": "server's metrics"}[shares["said_by"]]
        cached = f"{shares['cached_share']:.1%} of their tokens were cached (by the {source})"
    return f"prompts: salt {salt}; {cached}, the load itself shares {shares['own_share']:.1%}"


def prompt_cache_warning(shares: Mapping[str, Any]) -> str | None:
    """Return the warning that the server knew prompts from before; None where it did not."""
    cached_share = shares["cached_share"]
    explained = shares["own_share"] + shares["added_share"]
    if cached_share is None or cached_share <= explained + TOLERANCE:
        return None
    return _WARNING.format(cached=cached_share, explained=explained)


def _cached_share(
    finished: pd.DataFrame, metrics: CacheCounts | None
) -> tuple[float | None, Literal["usage", "metrics"] | None]:
    reported = finished[finished["cached_reported"].astype(bool)]
    if prompt_tokens := int(reported["prompt_tokens"].sum()):
        return int(reported["cached_tokens"].sum()) / prompt_tokens, "usage"
    if metrics and metrics.looked_up:
        return metrics.found / metrics.looked_up, "metrics"
    return None, None


def _added_share(finished: pd.DataFrame, wanted: Mapping[str, Request]) -> float:
    """Return the share of what the server adds to every prompt: the least of any request."""
    known = finished[finished["request_id"].isin(wanted)]
    if known.empty:
        return 0.0
    wanted_tokens = known["request_id"].map({name: r.prompt_tokens for name, r in wanted.items()})
    added_tokens = max(0, int((known["prompt_tokens"] - wanted_tokens).min()))
    return added_tokens * len(known) / max(1, int(known["prompt_tokens"].sum()))
