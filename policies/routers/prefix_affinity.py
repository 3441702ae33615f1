"""Send a prompt to the replica that last saw most of it (the cache-aware routing of SGLang, 2024).

The router does not read the caches: it remembers what it sent where, and takes that for cached. The
index is exact, whatever the staleness; only the loads that guard the balance are reports.
"""

from bisect import bisect_left
from collections.abc import Sequence as Listed

import numpy as np

from servetwin.policies.routers.least_loaded import LeastLoaded
from servetwin.policies.routers.replica_loads import ReplicaLoads, RouterConfig
from servetwin.policies.routers.routing import RouterBase
from servetwin.workloads.block_ids import Ids
from servetwin.workloads.native_class import mypyc_attr
from servetwin.workloads.request import Request


@mypyc_attr(allow_interpreted_subclasses=True)
class PrefixAffinity(RouterBase):
    """By the longest known prefix; by least load where little is known or balance is lost."""

    def __init__(self, loads: ReplicaLoads, config: RouterConfig, rng: np.random.Generator) -> None:
        super().__init__(loads, config, rng)
        self._least = LeastLoaded(loads, loads.requests)
        # Replica by prefix id, the one used longest ago first; a prefix after its continuations,
        # so that what is known of a prompt is always a prefix of it.
        self._seen: dict[int, int] = {}

    def take_over(self, before: "PrefixAffinity", places: Listed[int]) -> None:
        """Remember what another did; ``places`` are the new ones, -1 of a replica that has gone."""
        moved = ((name, places[place]) for name, place in before._seen.items())
        self._seen = {name: place for name, place in moved if place >= 0}

    def choose(self, request: Request, now_s: float) -> int:
        """Return the place of the replica that gets the request."""
        place = None if self._unbalanced(*self._least.range(now_s)) else self._holder(request)
        if place is None:
            place = self._least.choose(now_s, 1)
        self._remember(request.prefix_block_ids, place)
        return place

    def _unbalanced(self, lowest: int, highest: int) -> bool:
        config = self._config
        apart = highest - lowest > config.imbalance_requests
        return apart and highest > config.imbalance_ratio * lowest

    def _holder(self, request: Request) -> int | None:
        """Return the replica that saw enough of the prompt; None where none did."""
        ids, holders = request.prefix_block_ids, self._seen
        known = bisect_left(ids, True, key=lambda name: name not in holders)
        known_tokens = known * (request.block_tokens or 0)
        if known_tokens <= self._config.prefix_share * request.prompt_tokens:
            return None
        return holders[ids[known - 1]]

    def _remember(self, ids: Ids, place: int) -> None:
        holders = self._seen
        for name in reversed(ids):
            holders.pop(name, None)
            holders[name] = place
        while len(holders) > self._config.remembered_blocks:
            del holders[next(iter(holders))]
