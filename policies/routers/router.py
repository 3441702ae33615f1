"""The interface between a cluster and its router."""

from typing import Protocol

from servetwin.workloads.request import Request


class Router(Protocol):
    """Sends requests to replicas. Built as ``MyRouter(loads, config, rng)``."""

    def choose(self, request: Request, now_s: float) -> int:
        """Return the place of the replica that gets the request, from 0 to ``len(loads) - 1``.

        ``request.output_tokens`` is what the client declared, not what will come.
        """
