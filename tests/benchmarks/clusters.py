"""What a request costs behind each router, by the number of replicas, in bare SimPy events.

``python -m tests.benchmarks.clusters`` prints two tables: whole simulations, each replica under the
load of one server without a router, which is printed first; and the routers alone. Then what a day
of a fleet takes in a process of its own, by its requests; ``--requests N`` is one such process.
"""

import gc
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Annotated, NamedTuple

import numpy as np
import typer

from servetwin.policies.build import build_router
from servetwin.policies.registry import ROUTERS
from servetwin.policies.routers.replica_loads import ReplicaLoads, RouterConfig
from servetwin.sim.experiments.scenario import ClusterConfig
from servetwin.workloads.generators.arrivals import PoissonArrivals
from servetwin.workloads.generators.generate import WorkloadSpec, generate
from servetwin.workloads.generators.lengths import IndependentLengths, LognormalTokens
from servetwin.workloads.generators.modulated import DAY_S, DiurnalArrivals, Sinusoid
from servetwin.workloads.request import Request
from tests.benchmarks.simulator import (
    SIZE_HEADER,
    Case,
    Costs,
    event_s,
    own_figures,
    poisson,
    size_line,
    whole_process,
)

REPLICAS = (4, 100, 1_000, 10_000)
REQUESTS = 20_000
RATE_PER_S = 20.0
PAIRS = 3
OPEN_PER_REPLICA = 2
SESSIONS = 4_000
DAY_REQUESTS = 2_000_000
DAYS = (20_000, 100_000, 500_000, DAY_REQUESTS)
REASONING = IndependentLengths(
    LognormalTokens.from_mean(500, 0.8, max_tokens=4096),
    LognormalTokens.from_mean(4000, 0.6, max_tokens=30_000),
)
"""Answers of half a minute, so that 23 requests a second keep hundreds of replicas busy."""


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


def day(requests: int, router: str = "least-outstanding") -> Case:
    """Return a day at 23 requests a second, or so much of it, on a fleet of 100 to 1,000 replicas.

    The rate of a shorter day has the same curve in less time. A replica, of two sequences,
    crashes at nine, another one at ten, each for ten minutes of the day.
    """
    part = requests / DAY_REQUESTS
    wave = Sinusoid(peak_to_trough=10)
    arrivals = DiurnalArrivals(PoissonArrivals(DAY_REQUESTS / DAY_S), wave, DAY_S * part)
    case = Case.of(generate(WorkloadSpec(requests, arrivals, REASONING), 0), max_seqs=2)
    hour_s = 3600 * part
    cluster = ClusterConfig(
        replicas=500,
        router=router,
        autoscaling=f"utilisation:target=0.7,min=100,max=1000,stabilisation_s={300 * part}",
        faults=f"crash:replica=7,at_s={9 * hour_s},for_s={hour_s / 6} "
        f"crash:replica=70,at_s={10 * hour_s},for_s={hour_s / 6}",
    )
    return replace(case, scenario=replace(case.scenario, cluster=cluster))


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


def main(
    requests: Annotated[int | None, typer.Option(help="Only a day of so many, as JSON.")] = None,
    router: Annotated[str, typer.Option(help="The router of that day.")] = "least-outstanding",
) -> None:
    """Print both tables, and what days take."""
    if requests is not None:
        figures, summary = own_figures(lambda: day(requests, router))
        sizes = [size for _, size in summary["fleet"]["sizes"]]
        fleet = {name: summary["fleet"][name] for name in ("crashes", "lost", "started", "drained")}
        typer.echo(json.dumps({**figures, **fleet, "least": min(sizes), "most": max(sizes)}))
        return
    typer.echo(f"one server, {RATE_PER_S:g}/s: {one_server():.1f} events a request")
    for title, measure in MEASURES.items():
        typer.echo(f"\n{title}, events a request by replicas\n{HEADER}")
        for name in ROUTERS:
            typer.echo(measure(name).line())
    typer.echo(f"\n{SIZE_HEADER}   (a day of 100 to 1,000 replicas, a process each)")
    for size in DAYS:
        typer.echo(size_line(whole_process(size, "tests.benchmarks.clusters")))


if __name__ == "__main__":
    typer.run(main)
