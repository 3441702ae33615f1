"""Which replica gets a request. A router knows no clock but the ``now_s`` it is given.

The loads that it reads may be stale (``RouterConfig.staleness_s``): least
outstanding, least tokens, power of two and the guard of prefix affinity see the last report, their
own requests since then not included, so that with long intervals they herd. Round robin, random,
session affinity and the index of prefix affinity need no report and are exact.
"""

from hashlib import blake2b
from typing import Protocol

import numpy as np

from policies.routers.replica_loads import LeastLoaded, ReplicaLoads, RouterConfig
from workloads.request import Request


class Router(Protocol):
    """Sends requests to replicas. Built as ``MyRouter(loads, config, rng)``."""

    def choose(self, request: Request, now_s: float) -> int:
        """Return the place of the replica that gets the request, from 0 to ``len(loads) - 1``.

        ``request.output_tokens`` is what the client declared, not what will come.
        """


class RouterBase:
    """A router that keeps what it is built from."""

    def __init__(self, loads: ReplicaLoads, config: RouterConfig, rng: np.random.Generator) -> None:
        self._loads, self._config, self._rng = loads, config, rng
        self._count = len(loads)
        self._least = LeastLoaded(loads)


class RoundRobin(RouterBase):
    """One after the other."""

    _next = 0

    def choose(self, request: Request, now_s: float) -> int:
        """Return the next place in turn."""
        place, self._next = self._next, (self._next + 1) % self._count
        return place


class RandomChoice(RouterBase):
    """Each with the same chance."""

    def choose(self, request: Request, now_s: float) -> int:
        """Return any place."""
        return int(self._rng.integers(self._count))


class LeastOutstanding(RouterBase):
    """The fewest requests that are not answered yet, for the replica's speed."""

    def choose(self, request: Request, now_s: float) -> int:
        """Return the least busy place by requests."""
        return self._least.choose(self._loads.requests(now_s), 1)


class LeastTokens(LeastOutstanding):
    """The fewest outstanding tokens, prompts and declared outputs, for the replica's speed."""

    def choose(self, request: Request, now_s: float) -> int:
        """Return the least busy place by tokens."""
        return self._least.choose(self._loads.tokens(now_s), request.total_tokens)


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


class SessionAffinity(RouterBase):
    """All requests of a session (else of a tenant) to one replica, by rendezvous hashing.

    Each replica draws a number from its place and the session's name, the highest wins: one more
    replica takes over the sessions that it wins and moves no other (Thaler and Ravishankar, Using
    Name-Based Mappings to Increase Hit Rates, IEEE/ACM ToN 1998).
    """

    def choose(self, request: Request, now_s: float) -> int:
        """Return the place that wins the session, else the tenant, else the request."""
        name = request.session_id or request.tenant or request.request_id
        return max(range(self._count), key=lambda place: _draw(place, name))


def _draw(place: int, name: str) -> bytes:
    return blake2b(f"{place}:{name}".encode(), digest_size=8).digest()
