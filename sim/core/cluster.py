"""Many replicas: pools of servers behind routers, fed by a trace or by closed-loop clients."""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Listed
from functools import partial
from itertools import count
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from servetwin.policies.build import build_router, build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.protocols import Scheduler
from servetwin.policies.routers.replica_loads import ReplicaLoads, RouterConfig
from servetwin.sim.core.clients import Clients, Source
from servetwin.sim.core.environment import Environment
from servetwin.sim.core.faults import require_survivors
from servetwin.sim.core.fleet.fleet import Fleet
from servetwin.sim.core.fleet.gateway import FleetPlan, Gateway
from servetwin.sim.core.kv_transfer import KVLink, PrefillDecode
from servetwin.sim.core.lockstep_group import LockstepGroup, Rank
from servetwin.sim.core.pools import Pool, RoutedReplicas
from servetwin.sim.core.recorder import MOST_REPLICAS, Recorder
from servetwin.sim.core.replica import Replica
from servetwin.sim.core.simulate import (
    finished_run,
    run_to_end,
    send_at_stamps,
)
from servetwin.sim.records.run import Run
from servetwin.sim.records.tasks import task_columns
from servetwin.sim.step_times.acceptance import Verifier
from servetwin.sim.step_times.step_time import StepNoise
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.graphs.lanes import LaneSource
from servetwin.workloads.graphs.task_graph import TaskGraph, form_a_loop
from servetwin.workloads.program.collector import no_garbage_collection
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

Service = RoutedReplicas | PrefillDecode | Gateway
BuildScheduler = Callable[[PolicyConfig], Scheduler]
ROUND_ROBIN = RouterConfig()
NO_DELAY = KVLink()


@no_garbage_collection()
def simulate_cluster(
    requests: Iterable[Request], pools: Listed[Pool], router: RouterConfig = ROUND_ROBIN,
    decode_router: RouterConfig = ROUND_ROBIN, link: KVLink = NO_DELAY, *,
    recorder: Recorder | None = None, closed_loop: bool = True, fail_fast: bool = False,
    macro: bool = True, seed: int | Listed[int] = 0,
    on_arrival: Callable[[int], None] | None = None, build: BuildScheduler = build_scheduler,
    fleet: FleetPlan | None = None,
) -> Run:  # fmt: skip
    """Run ``requests`` to the end on the replicas of ``pools``, which are numbered in order.

    Either all pools serve whole requests behind ``router``; or prefill pools are behind ``router``,
    decode pools behind ``decode_router``, and ``link`` carries keys and values between them. A pool
    with ``ranks`` has so many for each replica, all behind the router. With ``macro``, replicas
    whose answers nothing waits for run ahead on their own (``sim.core.pools``).

    In a closed loop, requests with parents are sent after their answers, and lanes replay a trace
    that has them; with ``fail_fast`` a request without an answer ends its task. Otherwise all are
    sent at their stamps. ``recorder`` says what to keep. ``seed`` feeds a random stream for each
    router, for the noise of each replica and for the drafts of each request, so one more replica
    leaves the others as they are. ``build`` makes the scheduler of a replica. With a ``fleet`` they
    come and go; the pools have the most that there can be.

    Raises ``PolicyError`` for pools that do not fit together and for unknown policies or routers,
    ``TraceError`` for a request that follows itself.
    """
    _check(pools)
    env, recorder = Environment(), recorder or Recorder()
    seeds = np.random.SeedSequence(seed).spawn(4)
    macro = macro and not recorder.keep_records
    members = _members(env, recorder, pools, seeds[2:], macro, build)
    entrance, decode = _routed(members, [router, decode_router], seeds)
    requests = list(requests) if closed_loop and not isinstance(requests, Trace) else requests
    source = _source(requests, pools, fail_fast) if closed_loop else None
    shares = any(pool.policies.far_cache_shared for pool in pools)  # so order matters
    apart = macro and source is None and not shares and fleet is None
    run_ahead = (decode or entrance).run_on_demand() if apart else None
    comes_and_goes = None if fleet is None else _fleet(fleet, entrance, pools, build)

    def run() -> None:
        if run_ahead is not None and decode is None:
            send_at_stamps(requests, recorder, entrance.receive_at, on_arrival)
        else:
            service = _service(entrance, decode, link, comes_and_goes)
            clients = Clients(env, recorder, service.receive, on_arrival)
            _send_in_events(clients, service, requests, source)
        if run_ahead is not None:
            run_ahead.finish()
        recorder.pauses.sort(key=itemgetter(1))  # by time

    return _with_figures(finished_run(recorder, run_to_end(run)), recorder, source, comes_and_goes)


def _service(
    entrance: RoutedReplicas, decode: RoutedReplicas | None, link: KVLink, fleet: Fleet | None
) -> Service:
    """Return what takes the requests of clients."""
    if decode is not None:
        return PrefillDecode(entrance, decode, link)
    return entrance if fleet is None else fleet.gateway


def _send_in_events(
    clients: Clients, service: Service, requests: Iterable[Request], source: Source | None
) -> None:
    """Send all requests, each at its time or behind others, and run all events."""
    service.listen(clients.ended)
    if isinstance(service, Gateway):
        service.has_more = clients.has_more
    roots = enumerate(clients.recorder.begin(requests)) if source is None else source.roots
    clients.start(roots, source)
    clients.env.run()


def _fleet(
    plan: FleetPlan, entrance: RoutedReplicas, pools: Listed[Pool], build: BuildScheduler
) -> Fleet:
    """Return the fleet of pools; raises ``PolicyError`` where that cannot be."""
    places = [pool for pool in pools for _ in range(pool.replicas)]
    if any(p.role != "serve" or p.ranks > 1 or p.policies.far_cache_shared for p in pools):
        raise PolicyError(
            "faults, autoscaling, timeouts, hedges and quotas are of replicas that serve whole "
            "requests, each on its own; leave out prefill_replicas, decode_replicas, ranks and "
            "far_cache_shared"
        )
    if plan.rule is not None and len(pools) > 1:
        raise PolicyError("autoscaling starts replicas of one kind; give one profile")
    require_survivors(plan.faults, len(places), plan.rule is not None)
    return Fleet(plan, entrance, lambda place: build(places[place].policies), pools[0].policies)


def _with_figures(
    finished: Run, recorder: Recorder, source: Source | None, fleet: Fleet | None
) -> Run:
    """Add the tasks of requests that follow others, and the figures of lanes and of a fleet."""
    if fleet is not None:
        finished.extra["fleet"] = fleet.figures()
    if source is not None:
        columns = finished.table("requests")
        columns.update(task_columns(columns, recorder.requests, source))
    if isinstance(source, LaneSource):
        finished.extra["lanes"] = source.figures()
    return finished


def _source(requests: Iterable[Request], pools: Listed[Pool], fail_fast: bool) -> Source | None:
    """Return what says which requests follow others; None where none does."""
    if isinstance(requests, Trace) and requests.lanes is not None:
        each = (pool.policies for pool in pools)
        ranks, longest = count(), min(min(one.max_model_len, one.kv_tokens) for one in each)
        return LaneSource(
            requests, lambda request: (next(ranks), request),
            context_tokens=longest, fail_fast=fail_fast,
        )  # fmt: skip
    if not form_a_loop(requests):
        return None
    return TaskGraph(enumerate(requests), itemgetter(1), fail_fast=fail_fast)


class _Member(NamedTuple):
    pool: Pool
    replica: Replica


def _routed(
    built: Iterable[_Member], routers: Listed[RouterConfig], seeds: Listed[np.random.SeedSequence]
) -> tuple[RoutedReplicas, RoutedReplicas | None]:
    """Return the replicas that requests come to, and those that only decode, behind routers."""
    members = list(built)
    _group_ranks(members)
    _share_far(members)
    back = [member for member in members if member.pool.role == "decode"]
    front = [member for member in members if member.pool.role != "decode"]
    entrance = _behind(routers[0], front, seeds[0])
    return entrance, _behind(routers[1], back, seeds[1]) if back else None


def _members(
    env: Environment, recorder: Recorder, pools: Listed[Pool],
    seeds: Listed[np.random.SeedSequence], macro: bool, build: BuildScheduler,
) -> Iterator[_Member]:  # fmt: skip
    seed, draft_seed = seeds
    places = [pool for pool in pools for _ in range(pool.replicas * pool.ranks)]
    verifiers = {
        pool.acceptance: Verifier(pool.acceptance, draft_seed)
        for pool in pools
        if pool.acceptance is not None
    }
    for index, (pool, noise_seed) in enumerate(zip(places, seed.spawn(len(places)), strict=True)):
        noise = None
        if pool.noise is not None:
            noise = StepNoise(pool.noise, np.random.default_rng(noise_seed))
        scheduler = build(pool.policies)
        verifier = None if pool.acceptance is None else verifiers[pool.acceptance]
        kind = Rank if pool.ranks > 1 else Replica
        replica = kind(
            env, scheduler, pool.step_time, recorder, noise, macro, index, verifier=verifier
        )
        yield _Member(pool, replica)


def _group_ranks(members: Listed[_Member]) -> None:
    """Let the ranks of each server step together."""
    first = 0
    while first < len(members):
        ranks = members[first].pool.ranks
        together = [member.replica for member in members[first : first + ranks]]
        if ranks > 1:
            LockstepGroup([replica for replica in together if isinstance(replica, Rank)])
        first += ranks


def _share_far(members: Iterable[_Member]) -> None:
    """Give the servers of a pool one far memory, where their policies share it."""
    first: dict[int, PagedKV] = {}
    for pool, replica in members:
        memory = replica.scheduler.memory
        if pool.policies.far_cache_shared and isinstance(memory, PagedKV):
            memory.share_far(first.setdefault(id(pool), memory))


def _behind(
    config: RouterConfig,
    members: Listed[_Member],
    seed: np.random.SeedSequence,
) -> RoutedReplicas:
    replica_loads = ReplicaLoads([member.pool.speed for member in members], config.staleness_s)
    replicas = [member.replica for member in members]
    build = partial(build_router, config=config, rng=np.random.default_rng(seed))
    return RoutedReplicas(replicas, replica_loads, build)


def _check(pools: Listed[Pool]) -> None:
    roles = {pool.role for pool in pools}
    if roles not in ({"serve"}, {"prefill", "decode"}):
        raise PolicyError(
            f"pools: the roles {sorted(roles)} do not make a server; all must be 'serve', or some "
            "'prefill' and the others 'decode'"
        )
    if any(pool.role == "prefill" and not pool.policies.prompt_token for pool in pools):
        raise PolicyError(
            "prompt_token: a prefill replica hands on what its pass has begun, and prompts that "
            "yield no token (diffusion) begin nothing; serve them on replicas that do both"
        )
    replicas = sum(pool.replicas * pool.ranks for pool in pools)
    if replicas > MOST_REPLICAS:
        raise PolicyError(
            f"replicas: {replicas:,} in all pools are more than a run can number; "
            f"at most {MOST_REPLICAS:,}"
        )
