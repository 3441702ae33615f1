"""What a request costs behind each router, by the number of replicas, in bare SimPy events.

``python -m tests.benchmarks.clusters`` prints two tables: whole simulations, each replica under the
load of one server without a router, which is printed first; and the routers alone.
"""

import gc
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import numpy as np
import typer

from servetwin.policies.build import build_router
from servetwin.policies.registry import ROUTERS
from servetwin.policies.routers.replica_loads import ReplicaLoads, RouterConfig
from servetwin.sim.experiments.scenario import ClusterConfig
from servetwin.workloads.request import Request
from tests.benchmarks.simulator import Case, Costs, event_s, poisson

REPLICAS = (4, 100, 1_000, 10_000)
REQUESTS = 20_000
RATE_PER_S = 20.0
PAIRS = 3
OPEN_PER_REPLICA = 2
SESSIONS = 4_000


class Row(NamedTuple):
    """Bare events a request, by the number of replicas."""

    name: str
    events: dict[int, float]

    @property
    def growth(self) -> float:
        """The most expensive number of replicas, in costs of the cheapest."""
        return max(self.events.values()) / min(self.events.values())

    def line(self) -> str:
        figures = "".join(f"{self.events[count]:>10.1f}" for count in sorted(self.events))
        return f"{self.name:<26}{figures}{self.growth:>10.2f}"


HEADER = f"{'':<26}" + "".join(f"{count:>10,}" for count in REPLICAS) + f"{'growth':>10}"


def one_server() -> float:
    """Return the events a request of the same load on one server without a router."""
    return _events(poisson(REQUESTS, RATE_PER_S))


def cluster(router: str, replicas: int) -> Case:
    """Return requests in sessions of five, for replicas that are loaded as the one server is."""
    case = poisson(REQUESTS, RATE_PER_S * replicas)
    requests = [replace(r, session_id=f"s{i % SESSIONS}") for i, r in enumerate(case.trace)]
    scenario = replace(case.scenario, cluster=ClusterConfig(replicas, router=router))
    return Case(replace(case.trace, requests=tuple(requests)), scenario)


def simulated(router: str) -> Row:
    """Measure whole simulations behind a router."""
    return Row(router, {count: _events(cluster(router, count)) for count in REPLICAS})


def _events(case: Case) -> float:
    costs = Costs(case)
    for _ in range(PAIRS):
        costs.time_events()
        costs.simulate()
    return costs.events_per_request


def alone(router: str) -> Row:
    """Measure a router alone: a request is sent, and one that was sent before ends."""
    requests = [
        Request(f"r{i}", 0.0, 100 + 37 * i % 900, 50, (i % 500,), 64, session_id=f"s{i % SESSIONS}")
        for i in range(2_000)
    ]
    events = {}
    for count in REPLICAS:
        pairs = [(event_s(50_000), _route_s(router, count, requests)) for _ in range(PAIRS)]
        events[count] = median(route_s / bare_s for bare_s, route_s in pairs)
    return Row(router, events)


def _route_s(name: str, replicas: int, requests: list[Request]) -> float:
    loads = ReplicaLoads([1.0] * replicas)
    router = build_router(loads, RouterConfig(name), np.random.default_rng(0))
    under_way = deque[tuple[int, int]]()
    for number in range(OPEN_PER_REPLICA * replicas):
        under_way.append((number % replicas, 500 + number % 7))
        loads.sent(*under_way[-1], 0.0)
    router.choose(requests[0], 0.0)
    gc.disable()
    started_s = time.perf_counter()
    for request in requests:
        place, tokens = router.choose(request, 0.0), request.total_tokens
        loads.sent(place, tokens, 0.0)
        under_way.append((place, tokens))
        loads.ended(*under_way.popleft(), 0.0)
    elapsed_s = time.perf_counter() - started_s
    gc.enable()
    return elapsed_s / len(requests)


MEASURES: dict[str, Callable[[str], Row]] = {"simulated": simulated, "router alone": alone}


def main() -> None:
    """Print both tables."""
    typer.echo(f"one server, {RATE_PER_S:g}/s: {one_server():.1f} events a request")
    for title, measure in MEASURES.items():
        typer.echo(f"\n{title}, events a request by replicas\n{HEADER}")
        for router in ROUTERS:
            typer.echo(measure(router).line())


if __name__ == "__main__":
    typer.run(main)
