"""Which replica gets a request. A router knows no clock but the ``now_s`` it is given.

The loads that it reads may be stale (``RouterConfig.staleness_s``): least outstanding, least
tokens, power of two and the guard of prefix affinity see the last report, their own requests since
then not included, so that with long intervals they herd; vLLM's adds its own. Round robin, random,
session affinity and the index of prefix affinity need no report and are exact.
"""

from hashlib import blake2b
from struct import Struct

import numpy as np

from servetwin.policies.routers.least_loaded import LeastLoaded, ReportedLoads
from servetwin.policies.routers.replica_loads import ReplicaLoads, RouterConfig
from servetwin.policies.routers.router import Router
from servetwin.workloads.native_class import mypyc_attr
from servetwin.workloads.request import Request


@mypyc_attr(allow_interpreted_subclasses=True)
class RouterBase:
    """A router that keeps what it is built from."""

    def __init__(self, loads: ReplicaLoads, config: RouterConfig, rng: np.random.Generator) -> None:
        self._loads, self._config, self._rng = loads, config, rng
        self._count = len(loads)


@mypyc_attr(allow_interpreted_subclasses=True)
class RoundRobin(RouterBase):
    """One after the other."""

    _next = 0

    def choose(self, request: Request, now_s: float) -> int:
        """Return the next place in turn."""
        place, self._next = self._next, (self._next + 1) % self._count
        return place


@mypyc_attr(allow_interpreted_subclasses=True)
class RandomChoice(RouterBase):
    """Each with the same chance."""

    def choose(self, request: Request, now_s: float) -> int:
        """Return any place."""
        return int(self._rng.integers(self._count))


@mypyc_attr(allow_interpreted_subclasses=True)
class LeastOutstanding(RouterBase):
    """The fewest requests that are not answered yet, for the replica's speed."""

    def __init__(self, loads: ReplicaLoads, config: RouterConfig, rng: np.random.Generator) -> None:
        super().__init__(loads, config, rng)
        self._least = LeastLoaded(loads, loads.requests)

    def choose(self, request: Request, now_s: float) -> int:
        """Return the least busy place by requests."""
        return self._least.choose(now_s, 1)


@mypyc_attr(allow_interpreted_subclasses=True)
class LeastTokens(RouterBase):
    """The fewest outstanding tokens, prompts and declared outputs, for the replica's speed."""

    def __init__(self, loads: ReplicaLoads, config: RouterConfig, rng: np.random.Generator) -> None:
        super().__init__(loads, config, rng)
        self._least = LeastLoaded(loads, loads.tokens)

    def choose(self, request: Request, now_s: float) -> int:
        """Return the least busy place by tokens."""
        return self._least.choose(now_s, request.total_tokens)


@mypyc_attr(allow_interpreted_subclasses=True)
class LeastToCompute(RouterBase):
    """The least to compute: outstanding tokens, and what no cache there holds of the prompt.

    Dynamo's KV router and llm-d's precise scorer weigh load against such an index of all caches.
    """

    def __init__(self, loads: ReplicaLoads, config: RouterConfig, rng: np.random.Generator) -> None:
        super().__init__(loads, config, rng)
        self._tokens, self._speeds = ReportedLoads(loads, loads.tokens), np.array(loads.speeds)

    def choose(self, request: Request, now_s: float) -> int:
        """Return the place with the fewest tokens to compute, for the replica's speed."""
        hits = self._loads.hits(request)
        tokens = self._tokens.at(now_s) + request.total_tokens
        return int(((tokens - np.array(hits) if hits else tokens) / self._speeds).argmin())


@mypyc_attr(allow_interpreted_subclasses=True)
class VllmDataParallel(RouterBase):
    """The least of 4 x waiting + running requests, the first of equals.

    vLLM's choice of a data-parallel rank (0.9 and later); its loads are 0.1 s old at most.
    """

    def choose(self, request: Request, now_s: float) -> int:
        """Return the place with the shortest queue."""
        costs = [4 * waiting + running for running, waiting in self._loads.queues(now_s)]
        return costs.index(min(costs))


@mypyc_attr(allow_interpreted_subclasses=True)
class PowerOfTwo(RouterBase):
    """The less busy of two at random, the first of them if equal.

    Mitzenmacher, The Power of Two Choices in Randomized Load Balancing (IEEE TPDS 2001).
    """

    def choose(self, request: Request, now_s: float) -> int:
        """Return the less busy of two places, by requests for the replica's speed."""
        count = self._count
        if count == 1:
            return 0
        requests, speeds = self._loads.requests(now_s), self._loads.speeds
        first, step = int(self._rng.integers(count)), int(self._rng.integers(1, count))
        return min(
            (first, (first + step) % count), key=lambda place: (requests[place] + 1) / speeds[place]
        )


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionAffinity(RouterBase):
    """All requests of a session (else of a tenant) to one replica, by jump consistent hashing.

    One more replica takes over its share of the sessions and moves no other, and the cost grows
    with the logarithm of the number of replicas (Lamping and Veach, A Fast, Minimal Memory,
    Consistent Hash Algorithm, arXiv:1406.2294, 2014).
    """

    def choose(self, request: Request, now_s: float) -> int:
        """Return the place of the session, else the tenant, else the request."""
        return _jump(request.session_id or request.tenant or request.request_id, self._count)


# The routers that look at nothing but the request and the order of arrival.
BLIND_ROUTERS = (RoundRobin, RandomChoice, SessionAffinity)


def is_blind(router: Router) -> bool:
    """Return whether a router is sure to read no loads; one derived from a blind one may."""
    return type(router) in BLIND_ROUTERS


_DRAWS = Struct("<16I")
_DRAW_RANGE = 1 << 32


def _jump(name: str, count: int) -> int:
    """Return the place of a name among ``count``, drawn from the hash of the name alone.

    While replicas are added one by one, a name that has moved to the newest, at ``place``, is still
    there among n with chance (place + 1) / n. So with a uniform draw u it moves next to the place
    (place + 1) / u, rounded down.
    """
    place, key = 0, name.encode()
    for number in range(count):
        digest = blake2b(key, digest_size=_DRAWS.size, salt=number.to_bytes(8, "little")).digest()
        for draw in _DRAWS.unpack(digest):
            following = (place + 1) * _DRAW_RANGE // (draw + 1)
            if following >= count:
                return place
            place = following
    return place
